//! A connection as one side has it.

use crate::frame::Open;
use netchannel_shm::{Room, Run};
use std::collections::VecDeque;

/// What came out of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many bytes were put into the room.
    Bytes(usize),
    /// There is nothing now, or there was no room.
    Nothing,
    /// All bytes were taken, and none follows.
    End,
    /// The same, and nobody reads what comes any more.
    Closed,
    /// It was reset, for this reason.
    Failed(u32),
}

/// The end of a connection on this side: a program's lane, or a socket. None of its calls waits.
pub trait Sink {
    /// Takes bytes out of it, into that room, which may be none: then it is asked how it stands.
    fn take(&mut self, room: &[Room<'_>]) -> Taken;

    /// Puts bytes into it. Returns how many it took; where those are not all, it asks to be served again when it can take more.
    ///
    /// # Errors
    /// Why it takes none any more.
    fn put(&mut self, bytes: &[Run<'_>]) -> Result<usize, u32>;

    /// No byte follows.
    fn end(&mut self);

    /// The connection that was asked for is there.
    fn accepted(&mut self);

    /// The connection is over: in good order, or by a reset for that reason. `made` where it was there at all.
    fn close(self, error: Option<u32>, made: bool);
}

/// A connection.
#[derive(Debug)]
pub struct Flow<S> {
    /// Its number in frames.
    pub(crate) id: u64,
    /// It was opened by this side.
    pub(crate) is_own: bool,
    /// This side's end, while there is one.
    pub(crate) sink: Option<S>,
    /// Both sides have their ends.
    pub(crate) is_made: bool,
    /// It waits for its turn.
    pub(crate) is_queued: bool,
    /// Bytes that may be sent.
    pub(crate) credit: u64,
    /// Bytes that the other side may have sent before the first of them are taken.
    pub(crate) grant: u32,
    /// Bytes that the other side may still send.
    pub(crate) window: u64,
    /// Bytes that were taken, and of which the other side was not told.
    pub(crate) taken: u64,
    /// Bytes that came and were not taken.
    pub(crate) inbox: VecDeque<u8>,
    /// Frames that are to be sent.
    pub(crate) owes: Owed,
    pub(crate) sent_fin: bool,
    pub(crate) sent_close: bool,
    pub(crate) got_fin: bool,
    /// The other side's last word, with its errno.
    pub(crate) got_close: Option<u32>,
    /// The sink was told that no byte follows.
    pub(crate) told_end: bool,
    /// The sink takes nothing any more, for this reason.
    pub(crate) failed: Option<u32>,
}

/// Frames that are to be sent, in this order; bytes go before the last two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    pub open: Option<Open>,
    pub accept: bool,
    pub fin: bool,
    pub close: Option<u32>,
}

impl<S> Flow<S> {
    pub(crate) fn new(id: u64, is_own: bool, grant: u32, sink: Option<S>) -> Self {
        Self {
            id,
            is_own,
            sink,
            is_made: false,
            is_queued: false,
            credit: 0,
            grant,
            window: 0,
            taken: 0,
            inbox: VecDeque::new(),
            owes: Owed::default(),
            sent_fin: false,
            sent_close: false,
            got_fin: false,
            got_close: None,
            told_end: false,
            failed: None,
        }
    }

    /// Both sides have said their last word.
    pub(crate) const fn is_over(&self) -> bool {
        self.sent_close && self.got_close.is_some()
    }

    /// This side has said, or is about to say, its last word.
    pub(crate) const fn is_closing(&self) -> bool {
        self.sent_close || self.owes.close.is_some()
    }
}
