//! Bytes between the program's pair and the TCP socket, both ways, with their ends and resets.

use std::os::fd::BorrowedFd;

use crate::system;

/// Bytes that one read takes at most.
pub const READ: usize = 128 << 10;
/// Reads for one socket before others have a turn.
const TURN: usize = 8;

/// One way of a connection.
#[derive(Debug, Default)]
pub struct Direction {
    /// What was read and could not be written yet.
    held: Vec<u8>,
    begin: usize,
    /// Nothing comes any more.
    ended: bool,
    /// The end was passed on.
    told: bool,
    /// The other side takes nothing any more.
    closed: bool,
}

/// How a turn left a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for an event.
    Waits,
    /// There is more to do at once.
    Again,
    /// Both ways have ended and the program has let it go, or both sides know.
    Finished,
    /// The program's side was reset.
    ProgramReset,
    /// The other side was reset, or fails with another error.
    StreamFailed(i32),
}

enum Moved {
    Waits,
    Again,
    Ended,
    SourceFailed(i32),
    SinkFailed(i32),
}

impl Direction {
    /// Moves what can be moved.
    fn turn(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, scratch: &mut [u8]) -> Moved {
        for _ in 0..TURN {
            while self.begin < self.held.len() && !self.closed {
                match system::send(to, &self.held[self.begin..]) {
                    Ok(sent) => self.begin += sent,
                    Err(libc::EAGAIN) => return Moved::Waits,
                    Err(error) => return Moved::SinkFailed(error),
                }
            }
            self.let_go();
            if self.ended {
                return Moved::Ended;
            }
            let got = match system::receive(from, scratch) {
                Ok(0) => {
                    self.ended = true;
                    return Moved::Ended;
                }
                Ok(got) => got,
                Err(libc::EAGAIN | libc::EINTR) => return Moved::Waits,
                Err(error) => return Moved::SourceFailed(error),
            };
            if self.closed {
                continue;
            }
            let bytes = &scratch[..got];
            let sent = match system::send(to, bytes) {
                Ok(sent) => sent,
                Err(libc::EAGAIN) => 0,
                Err(error) => return Moved::SinkFailed(error),
            };
            if sent < got {
                self.held.extend_from_slice(&bytes[sent..]);
            }
        }
        Moved::Again
    }

    /// Forgets what was moved, and the memory of large amounts.
    fn let_go(&mut self) {
        const KEPT: usize = 4096;
        self.held.clear();
        self.begin = 0;
        if self.held.capacity() > KEPT {
            self.held = Vec::new();
        }
    }

    const fn is_done(&self) -> bool {
        self.told || self.closed
    }
}

/// Both ways of a connection.
#[derive(Debug, Default)]
pub struct Pump {
    outward: Direction,
    inward: Direction,
    /// The program has let its end go, or shut both ways.
    left: bool,
}

impl Pump {
    /// The program has let its end go, or shut both ways.
    pub const fn leave(&mut self) {
        self.left = true;
    }

    /// Gives both ways a turn.
    pub fn turn(
        &mut self,
        ours: BorrowedFd<'_>,
        stream: BorrowedFd<'_>,
        scratch: &mut [u8],
    ) -> Outcome {
        let mut again = false;
        if !self.outward.told {
            match self.outward.turn(ours, stream, scratch) {
                Moved::Waits => {}
                Moved::Again => again = true,
                // Closing says more than shutting: what is to happen at a close is among the stream's options.
                Moved::Ended if self.left || system::is_readable(ours).1 => {
                    return Outcome::Finished;
                }
                Moved::Ended => {
                    self.outward.told = true;
                    let _ = system::shutdown(stream, libc::SHUT_WR);
                }
                Moved::SourceFailed(_) => return Outcome::ProgramReset,
                Moved::SinkFailed(error) => return Outcome::StreamFailed(error),
            }
        }
        if self.left {
            // Whatever comes, nobody reads it.
            if self.outward.told {
                return Outcome::Finished;
            }
        } else if !self.inward.is_done() {
            match self.inward.turn(stream, ours, scratch) {
                Moved::Waits => {}
                Moved::Again => again = true,
                Moved::Ended => {
                    self.inward.told = true;
                    let _ = system::shutdown(ours, libc::SHUT_WR);
                }
                Moved::SourceFailed(error) => return Outcome::StreamFailed(error),
                // The program reads no more, but still writes: TCP takes the bytes, and nobody gets them.
                Moved::SinkFailed(_) => {
                    self.inward.closed = true;
                    again = true;
                }
            }
        }
        if again {
            Outcome::Again
        } else {
            Outcome::Waits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    /// The program's end, ours, the stream (another pair), the far end.
    struct Connection {
        end: Option<OwnedFd>,
        ours: OwnedFd,
        stream: OwnedFd,
        far: OwnedFd,
        pump: Pump,
        scratch: Vec<u8>,
    }

    impl Connection {
        fn new() -> Self {
            let (end, ours) = system::pair(libc::SOCK_NONBLOCK).unwrap();
            let (stream, far) = system::pair(libc::SOCK_NONBLOCK).unwrap();
            Self {
                end: Some(end),
                ours,
                stream,
                far,
                pump: Pump::default(),
                scratch: vec![0; READ],
            }
        }

        fn turn(&mut self) -> Outcome {
            let (ours, stream) = (self.ours.as_fd(), self.stream.as_fd());
            self.pump.turn(ours, stream, &mut self.scratch)
        }

        fn end(&self) -> BorrowedFd<'_> {
            self.end.as_ref().unwrap().as_fd()
        }

        fn close(&mut self) {
            self.end = None;
            self.pump.leave();
        }
    }

    fn drain(fd: &OwnedFd) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), vec![0; READ]);
        while let Ok(got @ 1..) = system::receive(fd.as_fd(), &mut room) {
            all.extend_from_slice(&room[..got]);
        }
        all
    }

    #[test]
    fn bytes_and_ends_go_both_ways_whatever_waits() {
        let mut one = Connection::new();
        let words = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]);
        let sent: Vec<u8> = words.collect();
        let (mut at, mut got) = (0, Vec::new());
        while got.len() < sent.len() {
            at += system::send(one.end(), &sent[at..]).unwrap_or(0);
            assert!(matches!(one.turn(), Outcome::Waits | Outcome::Again));
            got.extend(drain(&one.far));
        }
        assert!(got == sent);
        system::shutdown(one.far.as_fd(), libc::SHUT_WR).unwrap();
        assert_eq!(one.turn(), Outcome::Waits);
        assert_eq!(system::receive(one.end(), &mut [0]), Ok(0));
        // The other way is still open.
        system::send(one.end(), b"more").unwrap();
        one.close();
        assert_eq!(one.turn(), Outcome::Finished);
        assert_eq!(drain(&one.far), b"more");
        drop(std::mem::replace(
            &mut one.stream,
            system::pair(0).unwrap().0,
        ));
        assert_eq!(system::receive(one.far.as_fd(), &mut [0]), Ok(0));
    }

    #[test]
    fn an_end_closed_with_bytes_unread_is_a_reset() {
        let mut one = Connection::new();
        system::send(one.far.as_fd(), b"unread").unwrap();
        assert_eq!(one.turn(), Outcome::Waits);
        one.close();
        assert_eq!(one.turn(), Outcome::ProgramReset);
    }

    #[test]
    fn a_stream_that_fails_is_told() {
        let mut one = Connection::new();
        system::send(one.stream.as_fd(), b"unread").unwrap();
        let (_, other) = system::pair(0).unwrap();
        one.far = other;
        assert_eq!(one.turn(), Outcome::StreamFailed(libc::ECONNRESET));
    }

    #[test]
    fn a_program_that_reads_no_more_still_writes() {
        let mut one = Connection::new();
        system::shutdown(one.end(), libc::SHUT_RD).unwrap();
        system::send(one.far.as_fd(), b"unread").unwrap();
        while one.turn() == Outcome::Again {}
        system::send(one.end(), b"written").unwrap();
        assert_eq!(one.turn(), Outcome::Waits);
        assert_eq!(drain(&one.far), b"written");
    }
}
