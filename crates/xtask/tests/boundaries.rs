//! The rules of `docs/hostile-peers.md` stand in one place of the code each: what they guard is not done anywhere else, so that whoever
//! reviews one file has reviewed the rule. A rule that moves to another file is moved here too, on purpose.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of the source that only some files may have.
struct Rule {
    what: &'static str,
    /// Any of these in a line, outside of comments.
    words: &'static [&'static str],
    /// Crates it holds in.
    crates: &'static [&'static str],
    /// Files that may.
    files: &'static [&'static str],
}

const ALL: &[&str] = &[
    "daemon",
    "engine",
    "service",
    "stack-channels",
    "stack-local",
    "stack-kernel",
    "stack-process",
    "preload",
    "shm",
    "control",
    "cli",
    "driver",
    "trust",
];

/// The crates that are the daemon.
const DAEMON: &[&str] = &[
    "daemon",
    "engine",
    "service",
    "stack-channels",
    "stack-local",
    "stack-kernel",
    "stack-process",
];

const RULES: &[Rule] = &[
    Rule {
        what: "memory is mapped so that others can share it",
        words: &["MAP_SHARED", "MapFlags::SHARED"],
        crates: ALL,
        files: &["preload/src/waiting/epoll/board.rs", "shm/src/region.rs"],
    },
    Rule {
        what: "a file that somebody sent is judged as memory",
        words: &["F_GET_SEALS", "fcntl_get_seals"],
        crates: ALL,
        files: &["shm/src/outside.rs"],
    },
    Rule {
        what: "the daemon maps memory: what it made itself, and links of which it is an end",
        words: &["Region::map"],
        crates: DAEMON,
        files: &[
            "service/src/link.rs",
            "service/src/memory.rs",
            "stack-process/src/counters.rs",
        ],
    },
    Rule {
        what: "the kernel is asked who sent a message",
        words: &["ScmCredentials", "set_socket_passcred", "SO_PASSCRED"],
        crates: ALL,
        files: &["service/src/packet.rs"],
    },
    Rule {
        what: "the kernel is asked whose a connection is: for bounds, for a pump, for the queue of a listener, for whose daemon it is",
        words: &["socket_peercred", "SO_PEERCRED"],
        crates: ALL,
        files: &[
            "daemon/src/server.rs",
            "preload/src/processes/peer_libraries.rs",
            "preload/src/ground/sys/local.rs",
            "trust/src/calls.rs",
        ],
    },
    Rule {
        what: "the daemon asks the kernel who listens, and which anchors there are",
        words: &["SOCK_DIAG"],
        crates: DAEMON,
        files: &["engine/src/anchors.rs", "engine/src/diagnosis.rs"],
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("crates")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Files below `crates/*/src` with one of a rule's words in a line that is no comment, and no test.
fn having(rule: &Rule) -> Vec<String> {
    let mut files = Vec::new();
    for name in rule.crates {
        sources(&root().join(name).join("src"), &mut files);
    }
    let uses = |file: &PathBuf| {
        let source = fs::read_to_string(file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        code.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .any(|line| rule.words.iter().any(|word| line.contains(word)))
    };
    let name = |file: PathBuf| file.strip_prefix(root()).unwrap().display().to_string();
    let mut found: Vec<String> = files.into_iter().filter(uses).map(name).collect();
    found.retain(|file| !file.contains("tests"));
    found.sort();
    found
}

#[test]
fn what_a_rule_guards_is_done_in_its_place_only() {
    for rule in RULES {
        let mut places: Vec<&str> = rule.files.to_vec();
        places.sort_unstable();
        assert_eq!(having(rule), places, "where {}", rule.what);
    }
}

/// Memory that somebody sent can be mapped through `Outside` only: what makes one is private to its file.
#[test]
fn what_is_admitted_is_made_by_its_check_only() {
    let source = fs::read_to_string(root().join("shm/src/outside.rs")).unwrap();
    let body = source.split("pub struct Outside {").nth(1).unwrap();
    let fields = body.split('}').next().unwrap();
    assert!(!fields.contains("pub"), "the fields of Outside: {fields}");
    assert_eq!(source.matches("Ok(Self {").count(), 1);
}
