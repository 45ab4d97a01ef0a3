//! A channel as the workers see it.

use netchannel_shm::{Room, Run};
use std::io;
use std::os::fd::BorrowedFd;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued {
    /// So many bytes, at least 1.
    Bytes(usize),
    /// Nothing is there.
    Nothing,
    /// The end of the stream.
    End,
}

/// How a channel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Bytes taken and not sent yet.
    pub unsent: u64,
    /// Round trip time in nanoseconds; 0 while not known.
    pub round_trip: u64,
    /// Held back by the congestion window.
    pub congestion_limited: bool,
}

/// One transport connection to a peer: bytes in order, or its loss.
pub trait Channel: Send {
    /// Readable and writable, for epoll.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Takes bytes to send without waiting. 0 where it takes none now.
    ///
    /// # Errors
    /// The channel is lost.
    fn enqueue(&mut self, pieces: &[Run<'_>]) -> io::Result<usize>;

    /// Fills rooms with what has come, without waiting.
    ///
    /// # Errors
    /// The channel is lost.
    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued>;

    /// How it does.
    fn status(&mut self) -> Status;
}
