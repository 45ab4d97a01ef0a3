//! The taxonomy is held by chains that kernels really had, and knows every file of NetChannel.

use netchannel_taxonomy::{Category, Chain, Meaning, Side, Taxonomy, Word, classify};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each kernel with chains that it had; `examples/chains.rs` picks them.
const KERNELS: [(&str, &str); 3] = [
    ("6.1", include_str!("linux-6.1.txt")),
    ("6.12", include_str!("linux-6.12.txt")),
    ("6.18", include_str!("linux-6.18.txt")),
];
/// What no recording met in two of them: functions that they have, in modules, too, by themselves.
const FUNCTIONS: [(&str, &str); 3] = [
    ("6.1", include_str!("functions-6.1.txt")),
    ("6.12", include_str!("functions-6.12.txt")),
    ("6.18", include_str!("functions-6.18.txt")),
];
/// The rules that chains and functions of fewer than two kernels hold, each behind the number of those: of other architectures and versions.
const OPEN: &str = include_str!("open.txt");

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

fn all() -> impl Iterator<Item = (&'static str, Recorded<'static>)> {
    let kernels = KERNELS.into_iter().chain(FUNCTIONS);
    kernels.flat_map(|(version, text)| recorded(text).map(move |chain| (version, chain)))
}

fn meanings(taxonomy: &Taxonomy, functions: &[&str]) -> Vec<Meaning> {
    let names = functions.iter();
    names.map(|name| taxonomy.kernel(name)).collect()
}

#[test]
fn recorded_chains_are_what_they_were() {
    let taxonomy = Taxonomy::built_in().unwrap();
    let mut wrong = Vec::new();
    for (version, chain) in all() {
        let kernel = meanings(&taxonomy, &chain.functions);
        let judged = classify(Chain {
            kernel: &kernel,
            ..Chain::default()
        });
        if (judged.category, judged.side) != (chain.category, chain.side) {
            let (category, side) = (judged.category.name(), judged.side.name());
            wrong.push(format!(
                "Linux {version}: {category} {side}: {}",
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
fn chains_of_every_kernel_hold_every_category_and_role() {
    let taxonomy = Taxonomy::built_in().unwrap();
    for (version, text) in KERNELS {
        let categories: BTreeSet<_> = recorded(text).map(|chain| chain.category).collect();
        let of_the_study = |category: &&Category| **category <= Category::Other;
        for category in Category::BUSY.iter().filter(of_the_study) {
            assert!(
                categories.contains(category),
                "{version}: {}",
                category.name()
            );
        }
        let all: Vec<Meaning> = recorded(text)
            .flat_map(|chain| meanings(&taxonomy, &chain.functions))
            .collect();
        let words = [Word::Asks, Word::Entry, Word::Decides(Category::Locks)];
        for word in words {
            let has = all.iter().any(|meaning| meaning.word == word);
            assert!(has, "{version}: {word:?}");
        }
        assert!(all.iter().any(|meaning| meaning.is_late), "{version}");
        let sides: BTreeSet<_> = all.iter().filter_map(|meaning| meaning.side).collect();
        let both = BTreeSet::from([Side::Sender, Side::Receiver]);
        assert_eq!(sides, both, "{version}");
    }
}

/// A rule that is new, or changed, is held by chains or functions of two kernels, or stands in the list of those that are not.
#[test]
fn rules_are_held_by_two_kernels_or_listed() {
    let taxonomy = Taxonomy::built_in().unwrap();
    let mut held: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (version, chain) in all() {
        for rule in taxonomy.rules_of(&chain.functions) {
            held.entry(rule).or_default().insert(version);
        }
    }
    let rules: BTreeSet<String> = taxonomy.rules().collect();
    let kernels = |rule: &String| held.get(rule).map_or(0, BTreeSet::len);
    let open = rules.iter().filter(|rule| kernels(rule) < 2);
    let open: BTreeSet<String> = open
        .map(|rule| format!("{} {rule}", kernels(rule)))
        .collect();
    let listed: BTreeSet<String> = OPEN.lines().map(str::to_owned).collect();
    let differ: Vec<_> = open.symmetric_difference(&listed).collect();
    println!(
        "{} of {} rules are held by two kernels",
        rules.len() - open.len(),
        rules.len()
    );
    assert!(
        differ.is_empty(),
        "held otherwise than open.txt has it (`examples/chains.rs` writes it): {differ:?}"
    );
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
