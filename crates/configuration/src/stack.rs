//! Stacks that serve tenants as processes of their own.

use std::path::PathBuf;

/// Processors that a list may name, at most.
pub const MOST_PROCESSORS: usize = 1024;

/// A stack process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackTable {
    /// Its name, of the same letters as [`crate::Host::name`].
    pub name: String,
    /// What it is.
    pub kind: StackKind,
    /// Whether the daemon starts it. Otherwise somebody else does, with `netchannel stack`.
    pub starts: bool,
    /// The network namespace in which it makes and takes connections; by default the daemon's.
    pub namespace: Option<PathBuf>,
    /// The user as whom it runs; by default the daemon's.
    pub user: Option<u32>,
    /// The processors on which it runs; empty for all.
    pub processors: Vec<usize>,
    /// Bytes of memory that it may use, without what it shares with programs.
    pub memory: Option<u64>,
    /// What its tenants share by weight.
    pub fairness: StackFairness,
    /// `TCP_CONGESTION` of tenants whose tables name none.
    pub congestion_control: Option<String>,
}

/// The kind of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackKind {
    /// Kernel TCP on behalf of tenants.
    Kernel,
}

/// What the tenants of a stack share by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackFairness {
    /// The processor time of the stack.
    #[default]
    Processor,
    /// The bytes of a bottleneck in the network, besides.
    Network,
}

impl StackKind {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
        }
    }
}

impl StackFairness {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Network => "network",
        }
    }
}

/// Reads a list of processors, like `0-3,6`. `None` where it is none.
#[must_use]
pub fn parse_processors(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST_PROCESSORS {
            return None;
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// A list of processors as it is written.
#[must_use]
pub fn show_processors(processors: &[usize]) -> String {
    let all: Vec<String> = processors.iter().map(ToString::to_string).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_as_ranges_and_numbers() {
        assert_eq!(parse_processors("0-2,5,1"), Some(vec![0, 1, 2, 5]));
        assert_eq!(show_processors(&[0, 1, 5]), "0,1,5");
        for text in ["", "a", "2-1", "0-", "-1", "0,,1", "4096"] {
            assert_eq!(parse_processors(text), None, "{text}");
        }
    }
}
