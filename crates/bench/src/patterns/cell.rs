//! One thing that can be measured between two hosts: a traffic pattern, and what lies under it.

use crate::options::Transport;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of each write where nothing else is said.
pub const STREAM_CALL: usize = 128 * 1024;
/// Sizes that a request may have.
pub const REQUESTS: [usize; 5] = [64, 4096, 16_384, 32_768, 65_536];
/// Bytes of a short flow's request beside long flows.
pub const SHORT: usize = 4096;

/// Who sends to whom. A program stands for what the study runs on a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One program sends one flow to one program
    Single,
    /// N programs send one flow each to N programs
    OneToOne,
    /// N programs send one flow each to one program
    Incast,
    /// One program sends a flow to each of N programs
    Outcast,
    /// N programs send a flow to each of N programs
    AllToAll,
    /// One long flow beside N clients that ask for 4 KiB; the rate is the long flow's, the latency the clients'
    Mixed,
    /// Eight long flows beside N clients that ask for 4 KiB; the rate is the flows', the latency the clients'
    Isolation,
    /// N clients ask one server, one request of 4, 16 and 64 KiB at a time; the rate is of bytes in one direction
    Rpc,
}

impl Pattern {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Single => "single",
            Pattern::OneToOne => "one-to-one",
            Pattern::Incast => "incast",
            Pattern::Outcast => "outcast",
            Pattern::AllToAll => "all-to-all",
            Pattern::Mixed => "mixed",
            Pattern::Isolation => "isolation",
            Pattern::Rpc => "rpc",
        }
    }

    /// Whether it differs by the number of flows.
    pub fn has_flows(self) -> bool {
        self != Pattern::Single
    }

    /// The sizes that it is measured with where none is given.
    pub fn sizes(self) -> &'static [usize] {
        match self {
            Pattern::Rpc => &[4096, 16_384, 65_536],
            _ => &[STREAM_CALL],
        }
    }

    /// Whether a size can be had.
    pub fn takes(self, size: usize) -> bool {
        match self {
            Pattern::Rpc => REQUESTS.contains(&size),
            _ => size > 0 && STREAM_CALL.is_multiple_of(size),
        }
    }
}

/// The ladder of the study: each step has all before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Optimisations {
    /// Every packet of 1500 bytes is made, sent and received by itself
    None,
    /// Segments of up to 64 KiB pass as one
    TsoGro,
    /// Packets of 9000 bytes
    Jumbo,
    /// Each program on a processor of its own, as far as there are
    Pinned,
}

impl Optimisations {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Optimisations::None => "none",
            Optimisations::TsoGro => "tso-gro",
            Optimisations::Jumbo => "jumbo",
            Optimisations::Pinned => "pinned",
        }
    }
}

/// What lies under the programs: it is made anew for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// What is done for TCP.
    pub optimisations: Optimisations,
    /// The part of all packets to the receivers that is lost; none: there is no program that could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// How much later packets come to the receivers, in milliseconds; none: there is nothing that could hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Bytes to which buffers may grow, where it is not the usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<usize>,
    /// Of kernel TCP and of channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            optimisations: Optimisations::Pinned,
            loss: None,
            delay_ms: None,
            buffer: None,
            congestion_control: None,
        }
    }
}

impl Path {
    /// Bytes of a packet. What may lose packets takes none that is larger than a page.
    pub fn packet(&self) -> u16 {
        if self.loss.is_none() && self.optimisations >= Optimisations::Jumbo {
            9000
        } else {
            1500
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.optimisations.name())?;
        if let Some(loss) = self.loss {
            write!(formatter, ", loss {loss}")?;
        }
        if let Some(delay) = self.delay_ms {
            write!(formatter, ", delay {delay} ms")?;
        }
        if let Some(buffer) = self.buffer {
            write!(formatter, ", buffers {}", bytes_text(buffer))?;
        }
        if let Some(name) = &self.congestion_control {
            write!(formatter, ", {name}")?;
        }
        Ok(())
    }
}

/// What is measured, but for who carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// How many.
    pub flows: usize,
    /// Bytes of each write, or of each request.
    pub size: usize,
    /// What lies under it.
    pub path: Path,
}

impl fmt::Display for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.pattern.name())?;
        if self.pattern.has_flows() {
            write!(formatter, " {}", self.flows)?;
        }
        write!(formatter, ", {}, {}", bytes_text(self.size), self.path)
    }
}

/// Work, and who carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What is done.
    pub work: Work,
    /// Who carries it.
    pub transport: Transport,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.work, self.transport)
    }
}

/// `128 KiB`
pub fn bytes_text(bytes: usize) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_all_that_it_differs_by() {
        let path = Path {
            optimisations: Optimisations::Pinned,
            loss: Some(0.0015),
            delay_ms: Some(0.5),
            buffer: Some(400 << 10),
            congestion_control: Some("reno".to_owned()),
        };
        assert_eq!(path.packet(), 1500);
        let work = Work {
            pattern: Pattern::Incast,
            flows: 8,
            size: STREAM_CALL,
            path,
        };
        assert_eq!(
            work.to_string(),
            "incast 8, 128 KiB, pinned, loss 0.0015, delay 0.5 ms, buffers 400 KiB, reno"
        );
    }

    #[test]
    fn sizes_are_those_that_the_programs_have() {
        assert!(Pattern::Rpc.takes(4096) && !Pattern::Rpc.takes(4097));
        assert!(Pattern::Single.takes(1) && !Pattern::Single.takes(3) && !Pattern::Single.takes(0));
    }
}
