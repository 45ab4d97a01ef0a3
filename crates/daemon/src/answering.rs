//! Answers to commands that take more than one turn.

use crate::view::{FULL, Host, Memory, Programs, Sockets};
use netchannel_engine::region::Copies;
use netchannel_engine::turn::Turn;

/// An answer, as far as it has come. It is written as JSON as it is found.
#[derive(Debug)]
pub enum Answering {
    /// `netchannel ss`.
    Sockets(Sockets),
    /// `netchannel status`: its programs. What is said of the daemon follows.
    Programs(Programs),
}

/// How an answer goes on.
#[derive(Debug)]
pub enum Progress {
    /// In another turn.
    Later,
    /// With what is said of the daemon, where programs and links occupy so much.
    Summary(Memory),
    /// No more.
    Done,
}

impl Answering {
    /// Begins to list sockets.
    pub fn sockets(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"sockets":"#);
        Self::Sockets(Sockets::new(host, only, out))
    }

    /// Begins to list programs.
    pub fn programs(host: &Host<'_>, only: Option<u32>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"status":{"programs":"#);
        Self::Programs(Programs::new(host, only, out))
    }

    /// Goes on for a turn, as far as whoever asked has room for.
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
