//! Picks chains for `tests/linux-*.txt` from what a kernel really did, and lists the rules that no chains hold.
//!
//! netchannel profile --system --folded -o FILE -- COMMAND
//! cargo run --release -p netchannel-taxonomy --example chains -- pick FILE > chains.txt
//! cargo run --release -p netchannel-taxonomy --example chains -- functions NAMES tests/linux-*.txt > tests/functions-VERSION.txt
//! cargo run --release -p netchannel-taxonomy --example chains -- open tests/linux-*.txt , tests/functions-*.txt > tests/open.txt
//!
//! NAMES are all functions of a kernel and its modules, one on each line: of a running one
//! `awk '$2 ~ /[tTwW]/ {print $3}' /proc/kallsyms`, of another the symbols of its modules and of the BTF in its image.

use netchannel_taxonomy::{Category, Chain, Judgement, Meaning, Side, Taxonomy, Word, classify};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;

/// So many functions are kept beyond the one that decides, for readers.
const BEYOND: usize = 3;
/// More often than this is not better: then the shorter chain is.
const OFTEN: u64 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let taxonomy = Taxonomy::built_in()?;
    match &words[..] {
        [word, file] if word == "pick" => pick(&taxonomy, &std::fs::read_to_string(file)?),
        [word, names, files @ ..] if word == "functions" => {
            let names = std::fs::read_to_string(names)?;
            functions(&taxonomy, &names, &read(files)?);
        }
        [word, files @ ..] if word == "open" => {
            // A comma stands between the files of chains and those of functions, which are of the same kernels.
            let kinds: Vec<Vec<String>> = files
                .split(|word| word == ",")
                .map(read)
                .collect::<Result<_, _>>()?;
            open(&taxonomy, &kinds);
        }
        _ => return Err("pick FILE, functions NAMES FILES, or open FILES , FILES".into()),
    }
    Ok(())
}

/// For each rule the shortest of its chains that are not rare.
fn pick(taxonomy: &Taxonomy, folded: &str) {
    let mut chains: HashMap<Vec<&str>, u64> = HashMap::new();
    for line in folded.lines() {
        let Some((names, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let kernel = names
            .split(';')
            .filter_map(|name| name.strip_suffix("_[k]"));
        let mut chain: Vec<&str> = kernel.collect();
        chain.reverse();
        let is_of_all = !chain.iter().any(|name| name.contains("bpf_prog"));
        if is_of_all && !chain.is_empty() {
            *chains.entry(chain).or_default() += count.parse().unwrap_or(0);
        }
    }
    let mut best = BTreeMap::new();
    for (chain, count) in &chains {
        let chain = cut(taxonomy, chain);
        for rule in taxonomy.rules_of(chain) {
            let key = (Reverse((*count).min(OFTEN)), chain.len(), chain);
            let known = best.entry(rule).or_insert(key);
            *known = (*known).min(key);
        }
    }
    let picked: BTreeSet<&[&str]> = best.values().map(|(_, _, chain)| *chain).collect();
    let mut lines: Vec<(Category, String)> = picked
        .into_iter()
        .map(|chain| (judged(taxonomy, chain).category, line(taxonomy, chain)))
        .collect();
    lines.sort();
    for (_, line) in lines {
        println!("{line}");
    }
}

/// A chain as the tests have it.
fn line(taxonomy: &Taxonomy, chain: &[&str]) -> String {
    let Judgement { category, side, .. } = judged(taxonomy, chain);
    let side = match side {
        Side::Shared => String::new(),
        side => format!(" {}", side.name()),
    };
    format!("{}{side}: {}", category.name(), chain.join(" < "))
}

fn meaning(taxonomy: &Taxonomy, name: &&str) -> Meaning {
    taxonomy.kernel(name)
}

fn judged(taxonomy: &Taxonomy, chain: &[&str]) -> Judgement {
    let kernel: Vec<Meaning> = chain.iter().map(|name| meaning(taxonomy, name)).collect();
    classify(Chain {
        kernel: &kernel,
        ..Chain::default()
    })
}

/// Without what lies far beyond the functions that decide of category and side.
fn cut<'a, 'b>(taxonomy: &Taxonomy, chain: &'b [&'a str]) -> &'b [&'a str] {
    let decides = |name: &&str| {
        let word = meaning(taxonomy, name).word;
        !matches!(
            word,
            Word::Asks | Word::Unknown | Word::Decides(Category::Locks)
        )
    };
    let category = chain.iter().position(decides).unwrap_or(chain.len());
    let side = chain
        .iter()
        .position(|name| meaning(taxonomy, name).side.is_some());
    let last = category.max(side.unwrap_or(0)) + BEYOND;
    chain.get(..=last).unwrap_or(chain)
}

fn read(files: &[String]) -> std::io::Result<Vec<String>> {
    files.iter().map(std::fs::read_to_string).collect()
}

/// How many kernels hold each rule; those at the same place of several kinds are the same.
fn held(taxonomy: &Taxonomy, kinds: &[Vec<String>]) -> BTreeMap<String, usize> {
    let mut held: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (kernel, text) in kinds.iter().flat_map(|texts| texts.iter().enumerate()) {
        for (_, chain) in text.lines().filter_map(|line| line.split_once(": ")) {
            let chain: Vec<&str> = chain.split(" < ").collect();
            for rule in taxonomy.rules_of(&chain) {
                held.entry(rule).or_default().insert(kernel);
            }
        }
    }
    let count = |rule: String| {
        let kernels = held.get(&rule).map_or(0, BTreeSet::len);
        (rule, kernels)
    };
    taxonomy.rules().map(count).collect()
}

/// For each rule that chains of fewer than two kernels hold, the shortest function of this kernel that goes by it.
fn functions(taxonomy: &Taxonomy, names: &str, chains: &[String]) {
    let open = held(taxonomy, &[chains.to_vec()]);
    let mut best: BTreeMap<String, &str> = BTreeMap::new();
    for name in names.lines() {
        for rule in taxonomy.rules_of(&[name]) {
            if open.get(&rule).is_some_and(|kernels| *kernels < 2) {
                let known = best.entry(rule).or_insert(name);
                if (name.len(), name) < (known.len(), *known) {
                    *known = name;
                }
            }
        }
    }
    let picked: BTreeSet<&str> = best.into_values().collect();
    for name in picked {
        println!("{}", line(taxonomy, &[name]));
    }
}

/// The rules that fewer than two kernels hold.
fn open(taxonomy: &Taxonomy, kinds: &[Vec<String>]) {
    let held = held(taxonomy, kinds);
    for (rule, kernels) in held.iter().filter(|(_, kernels)| **kernels < 2) {
        println!("{kernels} {rule}");
    }
}
