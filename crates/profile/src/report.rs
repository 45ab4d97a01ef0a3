//! The figures of a profile: what `--json` prints and `diff` reads.

use crate::work::Work;
use netchannel_taxonomy::{Category, Side};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Samples by category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<Category, u64>);

impl Counts {
    /// Adds samples.
    pub fn add(&mut self, category: Category, count: u64) {
        *self.0.entry(category).or_default() += count;
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        for (category, count) in &other.0 {
            self.add(*category, *count);
        }
    }

    /// The samples of a category.
    #[must_use]
    pub fn get(&self, category: Category) -> u64 {
        self.0.get(&category).copied().unwrap_or(0)
    }

    /// The sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The percentage of a category.
    #[must_use]
    pub fn share(&self, category: Category) -> f64 {
        percent(self.get(category), self.total())
    }
}

/// A share in percent; 0 of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    // Counts of samples are far below where a f64 skips integers.
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of samples are far below 2^53"
    )]
    let ratio = part as f64 / whole as f64;
    100.0 * ratio
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which version of NetChannel wrote it.
    pub version: String,
    /// Which kernel it was taken on.
    pub kernel: String,
    /// The target: "system", a process, a command.
    pub target: String,
    /// The clock of samples: "cycles" or "cpu-clock".
    pub clock: String,
    /// Samples of a busy processor in a second.
    pub frequency: u64,
    /// The duration.
    pub seconds: f64,
    /// The number of processors.
    pub processors: usize,
    /// The number of runs.
    pub repeats: usize,
    /// Busy samples by category: they add up to all busy samples.
    pub categories: Counts,
    /// The lowest and highest percentage of each category among the runs, where there were several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<Category, (f64, f64)>,
    /// The work that was done meanwhile, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// The same by side. Samples of an unknown side are "shared".
    pub sides: BTreeMap<Side, Counts>,
    /// Samples of idle processors.
    pub idle: u64,
    /// Busy samples that came late, so that their innermost function is not what took the time.
    pub late: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Processor seconds of the profiler itself.
    pub own_seconds: f64,
    /// By program, the busiest first.
    pub programs: Vec<Program>,
    /// The functions that most samples were in, the busiest first.
    pub functions: Vec<Function>,
    /// Functions that the taxonomy lacks, the most frequent first.
    pub unclassified: Vec<Missing>,
    /// What could not be seen, and the reason.
    pub notes: Vec<String>,
}

/// The samples of one program: of all processes with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub processes: Vec<u32>,
    /// Busy samples by category.
    pub categories: Counts,
    /// The same by side.
    pub sides: BTreeMap<Side, Counts>,
    /// The sides of the chains, where processors were given.
    #[serde(default)]
    pub by_chain: ByChain,
    /// By name of thread, the busiest first.
    pub threads: Vec<Thread>,
}

/// How many samples on a side's processors have a chain that identifies a side, and how many of those identify the
/// other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByChain {
    /// Samples whose chain identifies a side.
    pub told: u64,
    /// Samples whose chain identifies the other side.
    pub wrong: u64,
}

impl ByChain {
    /// Adds all of another.
    pub fn merge(&mut self, other: Self) {
        self.told += other.told;
        self.wrong += other.wrong;
    }
}

/// The samples of a program's threads with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Their name.
    pub name: String,
    /// The number of threads.
    pub count: usize,
    /// Busy samples by category.
    pub categories: Counts,
}

/// A function that samples were in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The category of its samples.
    pub category: Category,
    /// The number of samples.
    pub samples: u64,
}

/// A chain of which no function is in the taxonomy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its functions, innermost first.
    pub chain: Vec<String>,
    /// The number of samples.
    pub samples: u64,
}

impl Report {
    /// Several runs as one: what was counted is added up, and the spread is kept.
    #[must_use]
    pub fn merged(runs: Vec<Self>) -> Option<Self> {
        let repeats = runs.len();
        let mut spread = BTreeMap::new();
        if repeats > 1 {
            for category in Category::BUSY {
                let shares = runs.iter().map(|run| run.categories.share(category));
                let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
                for share in shares {
                    low = low.min(share);
                    high = high.max(share);
                }
                if high > 0.0 {
                    spread.insert(category, (low, high));
                }
            }
        }
        let mut runs = runs.into_iter();
        let mut whole = runs.next()?;
        for run in runs {
            whole.add(run);
        }
        whole.repeats = repeats;
        whole.spread = spread;
        Some(whole)
    }

    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.idle += other.idle;
        self.late += other.late;
        self.lost += other.lost;
        self.own_seconds += other.own_seconds;
        self.work = match (self.work, other.work) {
            (Some(mine), Some(others)) => Some(mine.and(others)),
            _ => None,
        };
        self.categories.merge(&other.categories);
        merge_sides(&mut self.sides, &other.sides);
        for program in other.programs {
            let known = self.programs.iter_mut().find(|p| p.name == program.name);
            match known {
                Some(known) => known.add(program),
                None => self.programs.push(program),
            }
        }
        for function in other.functions {
            let mut known = self.functions.iter_mut();
            match known.find(|f| f.name == function.name && f.category == function.category) {
                Some(known) => known.samples += function.samples,
                None => self.functions.push(function),
            }
        }
        for missing in other.unclassified {
            let mut known = self.unclassified.iter_mut();
            match known.find(|m| m.chain == missing.chain) {
                Some(known) => known.samples += missing.samples,
                None => self.unclassified.push(missing),
            }
        }
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.sort();
    }

    /// The busiest first everywhere.
    pub fn sort(&mut self) {
        let programs = &mut self.programs;
        programs.sort_by_key(|program| std::cmp::Reverse(program.categories.total()));
        for program in programs {
            let threads = &mut program.threads;
            threads.sort_by_key(|thread| std::cmp::Reverse(thread.categories.total()));
        }
        self.functions
            .sort_by_key(|function| std::cmp::Reverse(function.samples));
        self.unclassified
            .sort_by_key(|missing| std::cmp::Reverse(missing.samples));
    }

    /// Processor seconds that busy samples stand for.
    #[must_use]
    pub fn busy_seconds(&self) -> f64 {
        self.seconds_of(self.categories.total())
    }

    /// The processor time that a number of samples represents, in seconds.
    #[must_use]
    pub fn seconds_of(&self, samples: u64) -> f64 {
        percent(samples, self.frequency.max(1)) / 100.0
    }
}

impl Program {
    fn add(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.categories.merge(&other.categories);
        merge_sides(&mut self.sides, &other.sides);
        self.by_chain.merge(other.by_chain);
        for thread in other.threads {
            match self.threads.iter_mut().find(|t| t.name == thread.name) {
                Some(known) => {
                    known.count += thread.count;
                    known.categories.merge(&thread.categories);
                }
                None => self.threads.push(thread),
            }
        }
    }
}

fn merge_sides(into: &mut BTreeMap<Side, Counts>, from: &BTreeMap<Side, Counts>) {
    for (side, counts) in from {
        into.entry(*side).or_default().merge(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(copy: u64, other: u64) -> Report {
        let mut report = Report {
            seconds: 1.0,
            frequency: 100,
            ..Report::default()
        };
        report.categories.add(Category::Copy, copy);
        report.categories.add(Category::Other, other);
        report.programs.push(Program {
            name: "p".to_owned(),
            categories: report.categories.clone(),
            ..Program::default()
        });
        report
    }

    #[test]
    fn runs_are_added_up_and_their_spread_is_kept() {
        let merged = Report::merged(vec![run(10, 90), run(30, 70)]).unwrap();
        assert!((merged.categories.share(Category::Copy) - 20.0).abs() < 1e-9);
        assert_eq!(merged.programs.len(), 1);
        assert_eq!(merged.programs[0].categories.total(), 200);
        let (low, high) = merged.spread[&Category::Copy];
        assert!((low - 10.0).abs() < 1e-9 && (high - 30.0).abs() < 1e-9);
        assert!((merged.busy_seconds() - 2.0).abs() < 1e-9);
        assert!(Report::merged(vec![run(1, 1)]).unwrap().spread.is_empty());
        assert!(Report::merged(Vec::new()).is_none());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let report = Report::merged(vec![run(10, 90), run(30, 70)]).unwrap();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
