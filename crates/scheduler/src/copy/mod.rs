//! The thread that copies between a program's buffer and a ring: the program's own, or a copy worker.

mod split;

#[cfg(test)]
mod tests;

pub use split::{CopyParameters, Pick, Split};

use crate::view::{Class, CoreId, WorkerId};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `send`: from the program into the ring.
    Send,
    /// `recv`: from the ring into the program.
    Receive,
}

/// One part of a `send` or `recv` that is still to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// Which way.
    pub direction: Direction,
    /// Of the socket.
    pub class: Class,
    /// Bytes of the whole call.
    pub length: u64,
    /// Bytes of the call that are being copied already.
    pub assigned: u64,
    /// Bytes of the socket that copy workers have and did not finish.
    pub in_flight: u64,
    /// The core of the caller, if known.
    pub core: Option<CoreId>,
}

/// One copy worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyWorkerView {
    /// Its number.
    pub id: WorkerId,
    /// Its core, if it is placed.
    pub core: Option<CoreId>,
    /// Bytes that wait for it.
    pub queued: u64,
    /// Whether it is on the NUMA node of the caller.
    pub near: bool,
}

/// The thread that copies the next part of a call. The number of bytes is at least 1, unless the whole call is
/// assigned, and at most what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyChoice {
    /// The calling thread.
    Local(u64),
    /// The copy worker with this index in the list that was shown.
    Worker(usize, u64),
}

/// Splits large calls. Asked again and again until all bytes of a call are assigned; the caller hands out what workers
/// copy first, and copies its own parts meanwhile.
pub trait CopyPolicy: Send {
    /// Chooses the thread for the next part.
    fn choose(&mut self, request: &CopyRequest, workers: &[CopyWorkerView], now: u64)
    -> CopyChoice;
}

/// Never splits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalCopy;

impl CopyPolicy for LocalCopy {
    fn choose(&mut self, request: &CopyRequest, _: &[CopyWorkerView], _: u64) -> CopyChoice {
        CopyChoice::Local(request.length.saturating_sub(request.assigned))
    }
}
