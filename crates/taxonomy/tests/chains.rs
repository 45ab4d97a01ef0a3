//! The taxonomy is held by chains that kernels really had, and knows every file of NetChannel.

use netchannel_taxonomy::{Category, Chain, Meaning, Side, Taxonomy, Word, classify};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const LINUX_6_18: &str = include_str!("linux-6.18.txt");

struct Recorded<'a> {
    category: Category,
    side: Side,
    functions: Vec<&'a str>,
}

fn recorded(text: &str) -> impl Iterator<Item = Recorded<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (head, chain) = line.split_once(": ").unwrap();
        let (category, side) = head.split_once(' ').unwrap_or((head, "shared"));
        Recorded {
            category: Category::named(category).unwrap(),
            side: *Side::ALL.iter().find(|known| known.name() == side).unwrap(),
            functions: chain.split(" < ").collect(),
        }
    })
}

fn meanings(taxonomy: &Taxonomy, functions: &[&str]) -> Vec<Meaning> {
    let names = functions.iter();
    names.map(|name| taxonomy.kernel(name)).collect()
}

#[test]
fn recorded_chains_are_what_they_were() {
    let taxonomy = Taxonomy::built_in().unwrap();
    let mut wrong = Vec::new();
    for chain in recorded(LINUX_6_18) {
        let kernel = meanings(&taxonomy, &chain.functions);
        let judged = classify(Chain {
            kernel: &kernel,
            ..Chain::default()
        });
        if (judged.category, judged.side) != (chain.category, chain.side) {
            let (category, side) = (judged.category.name(), judged.side.name());
            wrong.push(format!(
                "{category} {side}: {}",
                chain.functions.join(" < ")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "judged otherwise now:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn recorded_chains_hold_every_category_and_role() {
    let taxonomy = Taxonomy::built_in().unwrap();
    let categories: BTreeSet<_> = recorded(LINUX_6_18).map(|chain| chain.category).collect();
    for category in Category::BUSY
        .iter()
        .filter(|category| **category <= Category::Other)
    {
        assert!(categories.contains(category), "{}", category.name());
    }
    let all: Vec<Meaning> = recorded(LINUX_6_18)
        .flat_map(|chain| meanings(&taxonomy, &chain.functions))
        .collect();
    let words = [Word::Asks, Word::Entry, Word::Decides(Category::Locks)];
    for word in words {
        assert!(all.iter().any(|meaning| meaning.word == word), "{word:?}");
    }
    assert!(all.iter().any(|meaning| meaning.is_late));
    let sides: BTreeSet<_> = all.iter().filter_map(|meaning| meaning.side).collect();
    assert_eq!(sides, BTreeSet::from([Side::Sender, Side::Receiver]));
}

#[test]
fn a_processor_with_nothing_to_do_is_idle() {
    let taxonomy = Taxonomy::built_in().unwrap();
    for inner in [
        "pv_native_safe_halt",
        "intel_idle",
        "mwait_idle_with_hints.constprop.0",
    ] {
        let chain = [inner, "default_idle_call", "do_idle", "cpu_startup_entry"];
        let kernel = meanings(&taxonomy, &chain);
        let judged = classify(Chain {
            kernel: &kernel,
            ..Chain::default()
        });
        assert_eq!(judged.category, Category::Idle, "{inner}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What moves bytes, or arranges for it: a file of these crates that is in no category would be missing from profiles.
#[test]
fn every_file_of_netchannel_has_a_category() {
    let taxonomy = Taxonomy::built_in().unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in [
        "abi",
        "ring",
        "shm",
        "trust",
        "preload",
        "wire",
        "vns",
        "driver",
        "scheduler",
        "engine",
    ] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100, "found only {}", files.len());
    for file in files {
        let word = taxonomy.source(file.to_str().unwrap()).word;
        assert_ne!(word, Word::Unknown, "{}", file.display());
    }
}
