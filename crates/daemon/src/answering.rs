//! Answers to commands that take more than one turn.

use crate::view::{FULL, Host, Memory, Programs, Sockets};
use netchannel_engine::region::Copies;
use netchannel_engine::turn::Turn;

/// An answer that is being found. It is written as JSON step by step.
#[derive(Debug)]
pub enum Answering {
    /// `netchannel ss`.
    Sockets(Sockets),
    /// `netchannel status`: the programs. The summary of the daemon follows.
    Programs(Programs),
}

/// The result of a turn.
#[derive(Debug)]
pub enum Progress {
    /// Another turn is needed.
    Later,
    /// The summary of the daemon follows, with the memory that programs and links occupy.
    Summary(Memory),
    /// The answer is complete.
    Done,
}

impl Answering {
    /// Begins a list of sockets.
    pub fn sockets(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"sockets":"#);
        Self::Sockets(Sockets::new(host, only, out))
    }

    /// Begins a list of programs.
    pub fn programs(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"status":{"programs":"#);
        Self::Programs(Programs::new(host, only, out))
    }

    /// Continues for a turn, as far as there is room for output.
    pub fn run_turn(
        &mut self,
        host: &Host<'_>,
        copies: &mut Copies,
        turn: &Turn,
        out: &mut Vec<u8>,
    ) -> Progress {
        if out.len() >= FULL {
            return Progress::Later;
        }
        match self {
            Self::Sockets(sockets) => {
                if !sockets.run_turn(host, copies, turn, out) {
                    return Progress::Later;
                }
                out.extend_from_slice(b"}\n");
                Progress::Done
            }
            Self::Programs(programs) => {
                if programs.run_turn(host, copies, turn, out) {
                    Progress::Summary(programs.memory())
                } else {
                    Progress::Later
                }
            }
        }
    }
}
