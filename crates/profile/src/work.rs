//! The work that was done while samples were taken, from which the cost of a gigabyte and of an operation follows.
//!
//! There are three sources, in this order: the user, by options; the command, which writes it into a file ([`WorkReport`]);
//! and, for programs over kernel TCP and UDP, the counters of their network namespace.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// Names the file to which a command appends what it did, in lines such as `bytes 4096` and `operations 1`.
const VARIABLE: &str = "NETCHANNEL_PROFILE_WORK";

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes that were moved from one end to the other.
    pub bytes: u64,
    /// Operations, whatever they are: requests, messages, connections.
    pub operations: u64,
    /// The source.
    pub source: Source,
}

/// The source of the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The user gave it.
    Said,
    /// The command reported it.
    Told,
    /// The kernel counted the IP packets of the network namespace: of all programs in it, headers included.
    Counted,
}

impl Source {
    /// In a few words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Said => "as you said",
            Self::Told => "as the command told",
            Self::Counted => "IP packets of its network namespace, of all programs there",
        }
    }
}

impl Work {
    /// The work, unless it is nothing.
    pub fn of(bytes: u64, operations: u64, source: Source) -> Option<Self> {
        let work = Self {
            bytes,
            operations,
            source,
        };
        (bytes > 0 || operations > 0).then_some(work)
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            operations: self.operations + other.operations,
            ..self
        }
    }
}

/// The file in which a command reports its work.
pub struct WorkReport(tempfile::NamedTempFile);

impl WorkReport {
    /// An empty file. `None` where there is no room for it: the command can not report then.
    pub fn new() -> Option<Self> {
        let made = tempfile::Builder::new()
            .prefix("netchannel-profile-")
            .tempfile();
        made.ok().map(Self)
    }

    /// By which the command finds it.
    pub fn variable(&self) -> (&'static str, &Path) {
        (VARIABLE, self.0.path())
    }

    /// The reported work.
    pub fn work(&self) -> Option<Work> {
        let text = std::fs::read_to_string(self.0.path()).unwrap_or_default();
        let all = |name: &str| {
            let values = text.lines().filter_map(|line| line.strip_prefix(name));
            let values = values.filter_map(|value| value.trim().parse::<u64>().ok());
            values.fold(0, u64::saturating_add)
        };
        Work::of(all("bytes "), all("operations "), Source::Told)
    }
}

/// The counters of a network namespace.
pub struct Counters {
    /// A file of that namespace, also when the process has ended.
    file: File,
    before: u64,
}

impl Counters {
    /// Of the namespace of a process, or of ours.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(process: Option<u32>) -> io::Result<Self> {
        let process = process.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let mut file = File::open(format!("/proc/{process}/net/netstat"))?;
        let before = moved(&mut file)?;
        Ok(Self { file, before })
    }

    /// The work since the last call.
    pub fn work(&mut self) -> Option<Work> {
        let after = moved(&mut self.file).ok()?;
        Work::of(after.saturating_sub(self.before), 0, Source::Counted)
    }
}

/// Bytes that IP moved: in or out, whichever is more. Over loopback, and through a proxy, both are the same ones.
fn moved(file: &mut File) -> io::Result<u64> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let [received, sent] = ["InOctets", "OutOctets"].map(|name| counter(&text, name));
    Ok(received.max(sent))
}

/// A counter of IP, from lines of names and of values.
fn counter(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next(), lines.next());
    let mut both = names
        .unwrap_or_default()
        .split_whitespace()
        .zip(values.unwrap_or_default().split_whitespace());
    let value = both.find(|(of, _)| *of == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_a_command_tells_is_added_up() {
        let mut told = WorkReport::new().unwrap();
        assert_eq!(told.work(), None);
        write!(
            told.0,
            "bytes 10\noperations 3\nbytes 5\nbytes x\nthing 9\n"
        )
        .unwrap();
        assert_eq!(told.work(), Work::of(15, 3, Source::Told));
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let text =
            "TcpExt: InOctets\nTcpExt: 5\nIpExt: InPkts InOctets OutOctets\nIpExt: 1 700 20\n";
        assert_eq!(counter(text, "InOctets"), 700);
        assert_eq!(counter(text, "OutOctets"), 20);
        assert_eq!(counter("", "OutOctets"), 0);
        assert!(Counters::of(None).is_ok());
    }
}
