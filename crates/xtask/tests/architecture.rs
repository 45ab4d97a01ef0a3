//! The crate graph of the design: dependencies point down only, and `libnetchannel.so` carries nothing it need not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on among the crates of this workspace (normal and build dependencies).
const ALLOWED: [(&str, &[&str]); 29] = [
    ("abi", &[]),
    ("ring", &["abi"]),
    ("shm", &["abi", "ring"]),
    ("wire", &["abi"]),
    ("vns", &["abi"]),
    ("driver", &["abi", "shm"]),
    ("trust", &["shm"]),
    ("control", &["abi", "trust"]),
    ("scheduler", &[]),
    ("namespaces", &[]),
    ("taxonomy", &[]),
    ("profile", &["taxonomy"]),
    (
        "configuration",
        &["abi", "control", "driver", "scheduler", "wire"],
    ),
    (
        "service",
        &[
            "abi",
            "ring",
            "shm",
            "scheduler",
            "control",
            "configuration",
        ],
    ),
    ("stack-local", &["abi", "service", "shm"]),
    (
        "stack-process",
        &["abi", "shm", "scheduler", "configuration", "service"],
    ),
    ("guest", &["abi", "shm"]),
    ("guest-host", &["abi", "ring", "shm", "guest"]),
    ("stack-guest", &["abi", "shm", "service", "guest"]),
    (
        "stack-kernel",
        &[
            "abi",
            "shm",
            "scheduler",
            "configuration",
            "service",
            "stack-process",
        ],
    ),
    (
        "stack-channels",
        &[
            "abi",
            "ring",
            "shm",
            "control",
            "wire",
            "vns",
            "scheduler",
            "driver",
            "configuration",
            "service",
        ],
    ),
    ("engine", &["abi", "ring", "shm", "service"]),
    (
        "daemon",
        &[
            "abi",
            "ring",
            "shm",
            "control",
            "scheduler",
            "configuration",
            "service",
            "engine",
            "stack-channels",
            "stack-local",
            "stack-kernel",
            "stack-process",
        ],
    ),
    ("preload", &["abi", "ring", "shm", "trust"]),
    ("supervisor", &["abi"]),
    ("bench", &["abi", "ring", "shm", "control", "namespaces"]),
    (
        "cli",
        &[
            "abi",
            "ring",
            "shm",
            "control",
            "scheduler",
            "configuration",
            "daemon",
            "bench",
            "profile",
            "stack-kernel",
            "stack-process",
            "guest",
            "guest-host",
            "stack-guest",
            "supervisor",
        ],
    ),
    (
        "testkit",
        &[
            "abi",
            "ring",
            "shm",
            "control",
            "engine",
            "bench",
            "namespaces",
        ],
    ),
    ("xtask", &[]),
];

/// All that may be linked into `libnetchannel.so`, directly or not.
const IN_THE_LIBRARY: [&str; 5] = [
    "netchannel-abi",
    "netchannel-ring",
    "netchannel-shm",
    "netchannel-trust",
    "libc",
];

/// Crates that neither share memory nor make system calls.
const WITHOUT_UNSAFE: [&str; 8] = [
    "abi",
    "wire",
    "vns",
    "scheduler",
    "control",
    "configuration",
    "taxonomy",
    "xtask",
];

const LINES_OF_A_FILE: usize = 600;

/// A package's normal and build dependencies by package name, or all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    NormalAndBuild,
    Normal,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The resolved graph, by package name, of dependencies for any target.
fn graph(metadata: &Value, kinds: Kinds) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let wanted = |dependency: &&Value| {
        list(&dependency["dep_kinds"]).any(|kind| match kind["kind"].as_str() {
            None => true,
            Some("build") => kinds == Kinds::NormalAndBuild,
            Some(_) => false,
        })
    };
    list(&metadata["resolve"]["nodes"])
        .map(|node| {
            let dependencies = list(&node["deps"])
                .filter(wanted)
                .map(|dependency| names[text(&dependency["pkg"])].to_owned())
                .collect();
            (names[text(&node["id"])].to_owned(), dependencies)
        })
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(source_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn crates() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").is_file())
}

#[test]
fn dependencies_point_down_only() {
    let graph = graph(&metadata(), Kinds::NormalAndBuild);
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let mut seen = 0;
    for (package, dependencies) in &graph {
        let Some(name) = package.strip_prefix("netchannel-") else {
            continue;
        };
        let allowed = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{package} is not in the design"));
        for dependency in dependencies {
            let Some(dependency) = dependency.strip_prefix("netchannel-") else {
                continue;
            };
            assert!(
                allowed.contains(&dependency),
                "{package} must not depend on {dependency}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, ALLOWED.len(), "a crate of the design is missing");
}

#[test]
fn layouts_depend_on_nothing() {
    let graph = graph(&metadata(), Kinds::NormalAndBuild);
    assert_eq!(graph["netchannel-abi"], BTreeSet::new());
}

#[test]
fn the_library_carries_nothing_else() {
    let graph = graph(&metadata(), Kinds::Normal);
    let mut found = BTreeSet::new();
    let mut ahead = vec!["netchannel-preload"];
    while let Some(package) = ahead.pop() {
        for dependency in &graph[package] {
            if found.insert(dependency.as_str()) {
                ahead.push(dependency);
            }
        }
    }
    assert!(found.contains("libc"), "the walk found nothing: {found:?}");
    let extra: Vec<_> = found
        .iter()
        .filter(|name| !IN_THE_LIBRARY.contains(name))
        .collect();
    assert!(extra.is_empty(), "libnetchannel.so would carry {extra:?}");
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    for folder in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{}",
            folder.display()
        );
    }
}

#[test]
fn files_have_one_subject() {
    for folder in crates() {
        for file in source_files(&folder.join("src")) {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert!(
                lines <= LINES_OF_A_FILE,
                "{} has {lines} lines: split it",
                file.display()
            );
        }
    }
}

#[test]
fn crates_say_what_they_do() {
    for folder in crates() {
        // A program that has a library too is only its entry point.
        let roots = ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name));
        if let Some(file) = roots.iter().find(|file| file.is_file()) {
            let source = fs::read_to_string(file).unwrap();
            let lines = source
                .lines()
                .filter(|line| line.starts_with("//!"))
                .count();
            assert!(
                lines >= 5,
                "{}: //! must say what it does, never does, and its path",
                file.display()
            );
        }
    }
}

#[test]
fn unsafe_stays_where_it_belongs() {
    for name in WITHOUT_UNSAFE {
        let folder = root().join("crates").join(name).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| folder.join(file));
        for file in roots.iter().filter(|file| file.is_file()) {
            let source = fs::read_to_string(file).unwrap();
            assert!(
                source.contains("#![forbid(unsafe_code)]"),
                "{}",
                file.display()
            );
        }
    }
}

/// Whose daemon is used is judged in `trust`; there are two places that connect to one, and both ask it twice. A third place connects to
/// the queues of listeners: who does that looks whose they are.
#[test]
fn nobody_connects_to_a_daemon_without_judging_it() {
    const QUEUES: &str = "preload/src/ground/sys/local.rs";
    let mut callers = BTreeSet::new();
    let connecting = [
        "preload",
        "control",
        "cli",
        "configuration",
        "engine",
        "daemon",
        "service",
        "stack-channels",
        "stack-local",
    ];
    for name in connecting {
        for file in source_files(&root().join("crates").join(name).join("src")) {
            let source = fs::read_to_string(&file).unwrap();
            let connects = ["UnixStream::connect(", "SYS_connect,", "net::connect("];
            let is_test = file.components().any(|part| part.as_os_str() == "tests");
            let is_unix = source.contains("sockaddr_un") || source.contains("UnixStream::connect(");
            if file.ends_with(QUEUES)
                || is_test
                || !is_unix
                || !connects.iter().any(|call| source.contains(call))
            {
                continue;
            }
            for question in ["place::socket(", "peer::judge("] {
                assert!(source.contains(question), "{}: {question}", file.display());
            }
            callers.insert(file.strip_prefix(root().join("crates")).unwrap().to_owned());
        }
    }
    let known = ["control/src/client.rs", "preload/src/descriptors/attach.rs"].map(PathBuf::from);
    assert_eq!(callers, BTreeSet::from(known));
    for file in source_files(&root().join("crates/preload/src")) {
        let source = fs::read_to_string(&file).unwrap();
        if source.contains("local::connect(") {
            assert!(file.ends_with("listener/queue.rs"), "{}", file.display());
            assert!(source.contains("local::peer(anchor)"), "{}", file.display());
        }
    }
}
