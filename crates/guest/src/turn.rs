//! A connection's turn: what came goes into its sink, what the sink has goes into the ring, within the credit; then what is owed.

use crate::flow::{Flow, Sink, Taken};
use crate::frame::{Kind, MOST_PAYLOAD};
use crate::ring::Producer;
use crate::violation::Violation;
use netchannel_shm::{Region, Run};
use std::collections::VecDeque;

/// Bytes that are sent before other connections have their turn.
const BUDGET: usize = 256 << 10;

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing can be done before something happens.
    Idle,
    /// There is more, and others come first.
    More,
    /// The ring is full.
    Blocked,
}

impl<S: Sink> Flow<S> {
    /// Does what can be done.
    ///
    /// # Errors
    /// What the other side did.
    pub(crate) fn turn(&mut self, region: &Region, ring: &mut Producer) -> Result<Turn, Violation> {
        if let Some(open) = self.owes.open {
            if !ring.control(Kind::Open, self.id, self.grant, &open.to_words())? {
                return Ok(Turn::Blocked);
            }
            self.owes.open = None;
        }
        if self.owes.accept {
            if !ring.control(Kind::Accept, self.id, self.grant, &[])? {
                return Ok(Turn::Blocked);
            }
            self.owes.accept = false;
        }
        self.deliver();
        let mut turn = Turn::Idle;
        if !self.is_closing() {
            turn = self.send(region, ring)?;
        }
        if turn == Turn::More {
            return Ok(turn);
        }
        // Before the end of the stream come its bytes; a last word does not wait for those that no credit is for.
        if self.owes.fin && turn == Turn::Idle {
            if !ring.control(Kind::Fin, self.id, 0, &[])? {
                return Ok(Turn::Blocked);
            }
            (self.owes.fin, self.sent_fin) = (false, true);
        }
        if let Some(errno) = self.owes.close {
            if !ring.control(Kind::Close, self.id, errno, &[])? {
                return Ok(Turn::Blocked);
            }
            (self.owes.close, self.sent_close) = (None, true);
        }
        // Half of the window at a time, and all where nothing more is under way.
        let due = self.taken >= u64::from(self.grant / 2) || self.window == 0 && self.taken > 0;
        if due && self.is_made && !self.got_fin && !self.is_closing() {
            let more = u32::try_from(self.taken).unwrap_or(u32::MAX);
            if !ring.control(Kind::Credit, self.id, more, &[])? {
                return Ok(Turn::Blocked);
            }
            self.window += u64::from(more);
            self.taken -= u64::from(more);
        }
        Ok(turn)
    }

    /// Puts what came into the sink, and tells it what the other side has said behind that.
    pub(crate) fn deliver(&mut self) {
        if !self.is_made && self.got_close.is_none() {
            return;
        }
        let Some(sink) = &mut self.sink else {
            self.inbox = VecDeque::new();
            if self.got_close.is_some() {
                self.say_last(0);
            }
            return;
        };
        if !self.inbox.is_empty() {
            let (first, second) = self.inbox.as_slices();
            match sink.put(&[Run::from(first), Run::from(second)]) {
                Ok(count) => {
                    self.inbox.drain(..count);
                    self.taken += count as u64;
                }
                Err(errno) => self.failed = Some(errno),
            }
            if self.inbox.is_empty() {
                // Its memory goes: most connections need none.
                self.inbox = VecDeque::new();
            }
        }
        if let Some(errno) = self.failed {
            return self.fail(errno);
        }
        let all = self.inbox.is_empty();
        if all && self.got_fin && !std::mem::replace(&mut self.told_end, true) {
            sink.end();
        }
        match self.got_close {
            Some(0) if !all => {}
            Some(errno) => {
                let made = self.is_made;
                if let Some(sink) = self.sink.take() {
                    sink.close((errno != 0).then_some(errno), made);
                }
                self.inbox = VecDeque::new();
                self.say_last(0);
            }
            None => {}
        }
    }

    /// The sink is of no use any more: the other side is told so.
    fn fail(&mut self, errno: u32) {
        if let Some(sink) = self.sink.take() {
            sink.close(Some(errno), self.is_made);
        }
        self.inbox = VecDeque::new();
        self.owes.fin = false;
        self.say_last(errno);
    }

    /// The last frame of this side.
    pub(crate) const fn say_last(&mut self, errno: u32) {
        if !self.is_closing() {
            self.owes.close = Some(errno);
        }
    }

    fn send(&mut self, region: &Region, ring: &mut Producer) -> Result<Turn, Violation> {
        let mut budget = BUDGET;
        loop {
            let Some(sink) = &mut self.sink else {
                return Ok(Turn::Idle);
            };
            let credit = if self.is_made { self.credit } else { 0 };
            let most = usize::try_from(credit).unwrap_or(usize::MAX);
            let most = most.min(MOST_PAYLOAD);
            let has_ended = self.sent_fin || self.owes.fin;
            let span = match most {
                0 => None,
                _ if has_ended => None,
                _ => ring.room(most)?,
            };
            let room = span.and_then(|span| region.room(span));
            let blocked = most > 0 && !has_ended && room.is_none();
            match sink.take(room.as_slice()) {
                Taken::Bytes(count) => {
                    let count = count.min(most);
                    ring.commit(self.id, count)?;
                    self.credit -= count as u64;
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        return Ok(Turn::More);
                    }
                }
                Taken::Nothing if blocked => return Ok(Turn::Blocked),
                Taken::Nothing => return Ok(Turn::Idle),
                Taken::End => {
                    self.owes.fin |= !self.sent_fin && self.is_made;
                    return Ok(Turn::Idle);
                }
                Taken::Closed => {
                    // As a socket that is closed before all was read.
                    let lost = !self.inbox.is_empty() || !self.is_made;
                    self.owes.fin |= !self.sent_fin && self.is_made;
                    if let Some(sink) = self.sink.take() {
                        sink.close(None, self.is_made);
                    }
                    self.inbox = VecDeque::new();
                    self.say_last(if lost { CONNRESET } else { 0 });
                    return Ok(Turn::Idle);
                }
                Taken::Failed(errno) => {
                    self.fail(errno.max(1));
                    return Ok(Turn::Idle);
                }
            }
        }
    }
}

/// `ECONNRESET`.
pub(crate) const CONNRESET: u32 = 104;
