//! No circle of module imports: not between the folders of a crate, and not between the files of one folder. Who reads a module then
//! needs to know those below it only. `crate::`, `super::` and what a module gives out by `pub use` count; tests do not.
//!
//! Where an import was turned round (a trait that a higher module fulfils, a function that a higher module registers), a call
//! goes up that no import shows. These are few, and listed in ARCHITECTURE.md.

mod scan;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that have circles still, and how many modules lie in them. A number may only become smaller.
const STILL: &[(&str, usize)] = &[];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn each_crate() -> Vec<PathBuf> {
    let entries = fs::read_dir(crates()).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    folders
}

#[test]
fn no_circle_of_modules() {
    let still: BTreeMap<&str, usize> = STILL.iter().copied().collect();
    let (mut wrong, mut seen, mut known) = (Vec::new(), 0, BTreeSet::new());
    for folder in each_crate() {
        for (root, sources) in tree::roots(&folder, &crates()) {
            for (folder, arrows) in tree::arrows(&root, &sources, &crates()) {
                seen += arrows.len();
                let circles = tree::circles(&arrows);
                let count: usize = circles.iter().map(BTreeSet::len).sum();
                let allowed = still.get(folder.as_str()).copied().unwrap_or(0);
                if let Some((name, _)) = STILL.iter().find(|(name, _)| *name == folder) {
                    known.insert(*name);
                }
                if count < allowed {
                    wrong.push(format!(
                        "{folder}: {count} modules in circles, and {allowed} in the table: write {count} into STILL of {}",
                        file!()
                    ));
                } else if count > allowed {
                    wrong.push(format!(
                        "{folder}: {count} modules in circles, at most {allowed} may be"
                    ));
                    for circle in circles {
                        wrong.extend(imports(&arrows, &circle));
                    }
                }
            }
        }
    }
    assert!(
        seen > 200,
        "the walk found {seen} modules that import others"
    );
    for (name, _) in STILL {
        assert!(
            known.contains(name),
            "{name} imports nothing any more: take it out of STILL of {}",
            file!()
        );
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The imports within a circle.
fn imports(arrows: &tree::Arrows, circle: &BTreeSet<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    for from in circle {
        for (to, reasons) in &arrows[*from] {
            if circle.contains(to.as_str()) {
                let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
                lines.push(format!("  {from} -> {to}    {}", reasons.join(", ")));
            }
        }
    }
    lines
}

/// So many calls may go up at most: more would be a second way of importing.
const FEW: usize = 40;

/// What ARCHITECTURE.md lists under this head.
const HEAD: &str = "## Calls that go up";

/// Calls that go up, as `file: name`: traits that a module outside of the trait's own fulfils, in the same crate or in one above it, and
/// functions that are registered.
fn calls_up() -> BTreeSet<String> {
    let programs: Vec<(PathBuf, Vec<tree::Source>)> = each_crate()
        .iter()
        .flat_map(|folder| tree::roots(folder, &crates()))
        .collect();
    let mut found = BTreeSet::new();
    for (root, sources) in &programs {
        for source in sources {
            let line = |name: &String| format!("{}: {name}", source.file);
            found.extend(source.said.registered.iter().map(line));
            let outside = |name: &&String| {
                programs.iter().any(|(other_root, others)| {
                    others.iter().any(|other| {
                        other.said.fulfilled.contains(*name)
                            && (other_root != root || !other.module.starts_with(&source.module))
                    })
                })
            };
            found.extend(source.said.traits.iter().filter(outside).map(line));
        }
    }
    found
}

#[test]
fn calls_that_go_up_are_listed() {
    let page = fs::read_to_string(crates().parent().unwrap().join("ARCHITECTURE.md")).unwrap();
    let section = page
        .split(HEAD)
        .nth(1)
        .unwrap_or_default()
        .split("\n## ")
        .next()
        .unwrap();
    let listed: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    let found = calls_up();
    assert!(found.len() <= FEW, "{} calls go up", found.len());
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        missing.is_empty(),
        "not in ARCHITECTURE.md under \"{HEAD}\": {missing:#?}"
    );
    assert!(
        gone.is_empty(),
        "in ARCHITECTURE.md under \"{HEAD}\", and nowhere in the code: {gone:#?}"
    );
}
