//! Counting what was judged.

use crate::named::Named;
use crate::report::{ByChain, Counts, Function, Missing, Program, Report, Thread};
use netchannel_taxonomy::{Category, Side};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The limit of functions in a report.
const FUNCTIONS: usize = 200;
/// The limit of missing chains in a report, and of functions of each.
const MISSING: usize = 100;
const DEPTH: usize = 12;

#[derive(Default)]
struct OfProgram {
    processes: HashSet<u32>,
    sides: BTreeMap<Side, Counts>,
    by_chain: ByChain,
    threads: HashMap<String, (HashSet<u32>, Counts)>,
}

/// Counts all samples of a recording into a report, whose head is for the caller to fill.
#[must_use]
pub fn tally(named: &Named<'_>) -> Report {
    let mut report = Report::default();
    let threads = named.recording().threads();
    let mut programs: HashMap<String, OfProgram> = HashMap::new();
    let mut functions: HashMap<(&str, Category), u64> = HashMap::new();
    let mut missing: HashMap<Vec<&str>, u64> = HashMap::new();
    let mut by_chain: HashMap<(u32, Category), u64> = HashMap::new();
    for (key, count) in named.recording().counts() {
        let Some(judgement) = named.judgement(key.chain) else {
            continue;
        };
        let category = judgement.category;
        if category == Category::Idle {
            report.idle += count;
            continue;
        }
        report.categories.add(category, count);
        report.late += if judgement.is_late { count } else { 0 };
        let side = key.side.unwrap_or(judgement.side);
        report.sides.entry(side).or_default().add(category, count);
        *by_chain.entry((key.chain, category)).or_default() += count;
        let place = usize::try_from(key.thread).ok();
        if let Some(thread) = place.and_then(|place| threads.get(place)) {
            let program = programs
                .entry(family(&thread.program).to_owned())
                .or_default();
            program.processes.insert(thread.pid);
            program.sides.entry(side).or_default().add(category, count);
            program
                .by_chain
                .merge(by_chain_of(key.side, judgement.side, count));
            let known = program.threads.entry(family(&thread.name).to_owned());
            let (numbers, counts) = known.or_default();
            numbers.insert(thread.tid);
            counts.add(category, count);
        }
    }
    for ((chain, category), count) in by_chain {
        let mut names = named.functions(chain);
        if category == Category::Unclassified {
            let chain = named.functions(chain).take(DEPTH).map(|(name, _)| name);
            *missing.entry(chain.collect()).or_default() += count;
        }
        if let Some((name, _)) = names.next() {
            *functions.entry((name, category)).or_default() += count;
        }
    }
    report.lost = named.recording().lost();
    report.programs = programs.into_iter().map(program).collect();
    let functions = functions.into_iter();
    report.functions = functions
        .map(|((name, category), samples)| Function {
            name: name.to_owned(),
            category,
            samples,
        })
        .collect();
    let missing = missing.into_iter();
    report.unclassified = missing
        .map(|(chain, samples)| Missing {
            chain: chain.into_iter().map(str::to_owned).collect(),
            samples,
        })
        .collect();
    report.sort();
    report.functions.truncate(FUNCTIONS);
    report.unclassified.truncate(MISSING);
    report
}

/// Compares the sides of a chain and of a processor.
fn by_chain_of(processor: Option<Side>, chain: Side, count: u64) -> ByChain {
    match processor {
        Some(side) if chain != Side::Shared => ByChain {
            told: count,
            wrong: if chain == side { 0 } else { count },
        },
        _ => ByChain::default(),
    }
}

fn program((name, of): (String, OfProgram)) -> Program {
    let mut processes: Vec<u32> = of.processes.into_iter().collect();
    processes.sort_unstable();
    let mut categories = Counts::default();
    of.sides.values().for_each(|side| categories.merge(side));
    let threads = of.threads.into_iter();
    Program {
        name,
        processes,
        categories,
        sides: of.sides,
        by_chain: of.by_chain,
        threads: threads
            .map(|(name, (numbers, categories))| Thread {
                name,
                count: numbers.len(),
                categories,
            })
            .collect(),
    }
}

/// The kernel's threads have the number of a processor, or what they work on, in their names.
fn family(name: &str) -> &str {
    match name.split_once('/') {
        Some((family, _)) if !family.is_empty() => family,
        _ => name,
    }
}
