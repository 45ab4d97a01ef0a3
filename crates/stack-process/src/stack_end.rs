//! The stack's end of a session.

use crate::endpoint::{Endpoint, Received};
use crate::message::{Instruction, InstructionText, Report};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The stack's end.
#[derive(Debug)]
pub struct StackEnd(Endpoint);

/// What came.
#[derive(Debug)]
pub enum Heard {
    /// A message.
    Instruction(Instruction),
    /// Nothing for now.
    Nothing,
    /// The session has ended: CoreEngine has, or it sent what is no message.
    Ended,
}

impl StackEnd {
    /// Of a socket that came with a session.
    #[must_use]
    pub const fn new(socket: OwnedFd) -> Self {
        Self(Endpoint::new(socket))
    }

    /// Sends a report, or keeps it until CoreEngine reads.
    ///
    /// # Errors
    /// The session has ended.
    pub fn send(&mut self, report: Report) -> Result<(), Errno> {
        let (text, with) = report.pack();
        self.0.send(&text, with).map(drop)
    }

    /// Sends what is kept. Returns whether there is more.
    ///
    /// # Errors
    /// The session has ended.
    pub fn flush(&mut self) -> Result<bool, Errno> {
        self.0.flush()
    }

    /// The next message.
    pub fn hear(&mut self) -> Heard {
        match self.0.receive::<InstructionText>() {
            Received::Message(text, with) => {
                Instruction::unpack(text, with).map_or(Heard::Ended, Heard::Instruction)
            }
            Received::Nothing => Heard::Nothing,
            Received::Ended | Received::Garbage => Heard::Ended,
        }
    }
}

impl AsFd for StackEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
