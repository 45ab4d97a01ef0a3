//! The planted defects of `tests/plants` apply to the code as it is. `git apply` needs no repository.

use std::path::Path;
use std::process::Command;

#[test]
fn every_plant_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the root");
    let mut patches: Vec<_> = std::fs::read_dir(root.join("tests/plants"))
        .expect("the plants")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "patch")
        })
        .collect();
    patches.sort();
    assert!(!patches.is_empty(), "no plants");
    let applies = |patch: &Path| {
        Command::new("git")
            .current_dir(&root)
            .args(["apply", "--check"])
            .arg(patch)
            .status()
            .expect("git")
            .success()
    };
    patches.retain(|patch| !applies(patch));
    assert!(patches.is_empty(), "make these again: {patches:?}");
}
