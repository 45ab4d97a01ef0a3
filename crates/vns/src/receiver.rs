//! The receive direction: the place of bytes, the contiguous part, the window, the end, and when a Window is due.

use crate::channel::ChannelId;
use crate::claims::{Claim, Claims};
use crate::ranges::Ranges;
use crate::sender::MOST_WINDOW;
use crate::sequence::Origin;
use crate::types::{Fault, Transmit, Violation, Window};

/// The place of arriving bytes.
#[derive(Debug)]
pub(crate) enum Accepted {
    Write {
        start: u64,
        end: u64,
        skip: u64,
        claim: Claim,
    },
    Duplicate,
    Dropped,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    origin: Origin,
    capacity: u64,
    /// The program has read all bytes before this one.
    read: u64,
    /// All bytes before this one are placed.
    frontier: u64,
    ranges: Ranges,
    claims: Claims,
    /// The end of the highest byte that was ever received.
    highest: u64,
    /// The end of the stream, once known.
    end: Option<u64>,
    /// Bytes up to here had come and were forgotten.
    forgotten: u64,
    /// The state that was last announced to the peer.
    announced_filled: u64,
    announced_fin: bool,
    announced_limit: u64,
    announced_at: u64,
    announced_on: Option<ChannelId>,
    /// A Window is due now, or at that time.
    due: bool,
    due_at: Option<u64>,
}

impl Receiver {
    pub(crate) fn new(start: u64, capacity: u64, now: u64) -> Self {
        Self {
            origin: Origin(start),
            capacity: capacity.min(MOST_WINDOW),
            read: 0,
            frontier: 0,
            ranges: Ranges::default(),
            claims: Claims::default(),
            highest: 0,
            forgotten: 0,
            end: None,
            announced_filled: 0,
            announced_fin: false,
            // Set when Open or Answer is sent.
            announced_limit: 0,
            announced_at: now,
            announced_on: None,
            due: false,
            due_at: None,
        }
    }

    pub(crate) fn on_data(&mut self, sequence: u64, length: u32) -> Result<Accepted, Violation> {
        let from = self.origin.offset(sequence).ok_or(Violation::BeforeStart)?;
        let to = from + u64::from(length);
        if to > self.announced_limit {
            return Err(Violation::WindowExceeded);
        }
        if self.end.is_some_and(|end| to > end) {
            return Err(Violation::DataAfterEnd);
        }
        self.highest = self.highest.max(to);
        let Some((start, end)) = self.ranges.missing(from.max(self.frontier), to) else {
            // The peer has sent it again because our Window was lost, or is late.
            self.due = true;
            return Ok(Accepted::Duplicate);
        };
        let Some(claim) = self.claims.take(start, end) else {
            self.forget(to);
            return Ok(Accepted::Dropped);
        };
        Ok(Accepted::Write {
            start,
            end,
            skip: start - from,
            claim,
        })
    }

    /// Bytes were written. Returns whether the frontier has moved, and how many bytes had to be forgotten.
    pub(crate) fn placed(&mut self, claim: &Claim, sequence: u64, length: u32) -> (bool, u64) {
        let Some(start) = self.origin.offset(sequence) else {
            return (false, 0);
        };
        let Some((start, end)) = self.claims.written(claim, start, start + u64::from(length))
        else {
            return (false, 0);
        };
        if start > self.frontier {
            let forgotten = self.ranges.insert(start, end);
            let bytes = forgotten.map_or(0, |(start, end)| {
                self.forget(end);
                end - start
            });
            return (false, bytes);
        }
        if end <= self.frontier {
            return (false, 0);
        }
        self.frontier = self.ranges.absorb(end);
        if self.is_ended() {
            self.due = true;
        }
        (true, 0)
    }

    /// Bytes before `end` must be sent again. The peer is told at once, and then with each Window.
    fn forget(&mut self, end: u64) {
        self.due |= !self.requests_repeat();
        self.forgotten = self.forgotten.max(end);
    }

    const fn requests_repeat(&self) -> bool {
        self.forgotten > self.frontier
    }

    pub(crate) fn finish(&mut self, claim: Claim) {
        self.claims.finish(claim);
    }

    pub(crate) fn on_fin(&mut self, sequence: u64) -> Result<(), Violation> {
        let end = self.origin.offset(sequence).ok_or(Violation::BeforeStart)?;
        if end > self.announced_limit {
            return Err(Violation::WindowExceeded);
        }
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(Violation::EndMoved);
        }
        self.end = Some(end);
        // Due now if it is contiguous or a repetition; otherwise when the last byte comes.
        self.due |= self.is_ended();
        Ok(())
    }

    pub(crate) fn on_read(&mut self, sequence: u64) -> Result<(), Fault> {
        let read = self.origin.offset(sequence).ok_or(Fault)?;
        if read < self.read || read > self.frontier {
            return Err(Fault);
        }
        self.read = read;
        Ok(())
    }

    pub(crate) fn on_capacity(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity.min(MOST_WINDOW));
    }

    /// The limit that may be announced: never less than before, and never so much that a claimed place could be used
    /// again.
    fn limit(&self) -> u64 {
        let keep = self
            .claims
            .lowest()
            .map_or(self.read, |lowest| lowest.min(self.read));
        (keep + self.capacity).max(self.announced_limit)
    }

    /// Decides whether the changes are worth a Window.
    pub(crate) fn consider(&mut self, segment: u32, delay: u64, now: u64) {
        if self.due {
            return;
        }
        let (arrived, opened) = self.unannounced();
        if arrived == 0 && opened == 0 {
            return;
        }
        let much = (self.capacity / 4).min(2 * u64::from(segment));
        let later = self.announced_at.saturating_add(delay);
        // A closed window is opened at once, but not byte by byte.
        let was_closed = self.announced_limit == self.frontier && opened > 0 && later <= now;
        if arrived >= much || opened >= much || was_closed {
            self.due = true;
        } else if self.due_at.is_none() {
            let at = if self.announced_limit == self.frontier {
                later
            } else {
                now.saturating_add(delay)
            };
            self.due_at = Some(at);
        }
    }

    /// The changes that the peer does not know: acknowledged bytes and opened window.
    fn unannounced(&self) -> (u64, u64) {
        let opened = if self.is_ended() {
            0
        } else {
            self.limit() - self.announced_limit
        };
        let fin = u64::from(self.is_ended() != self.announced_fin);
        (self.frontier - self.announced_filled + fin, opened)
    }

    /// Makes a Window due whose time has come.
    pub(crate) fn on_time(&mut self, now: u64) {
        self.due |= self.due_at.is_some_and(|at| at <= now);
    }

    pub(crate) const fn schedule_window(&mut self) {
        self.due = true;
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.due || self.due_at.is_some_and(|at| at <= now)
    }

    /// When a Window is due, if not now.
    pub(crate) const fn due_at(&self) -> Option<u64> {
        if self.due { None } else { self.due_at }
    }

    /// The Window to send.
    pub(crate) fn window(&self, ask: bool) -> Transmit {
        Transmit::Window(Window {
            filled: self.origin.sequence(self.frontier),
            limit: self.first_window(),
            fin: self.is_ended(),
            ask,
            again: self.requests_repeat(),
        })
    }

    /// The limit in Open and Answer.
    pub(crate) fn first_window(&self) -> u64 {
        self.origin.sequence(self.limit())
    }

    /// The limit was sent with Open or Answer.
    pub(crate) fn on_first_limit_sent(&mut self, limit: u64, now: u64) {
        self.note_limit(limit, now);
        if self.unannounced() == (0, 0) {
            self.due = false;
            self.due_at = None;
        }
    }

    /// A Window was sent.
    pub(crate) fn on_window_sent(&mut self, window: &Window, channel: ChannelId, now: u64) {
        self.note_limit(window.limit, now);
        if let Some(filled) = self.origin.offset(window.filled) {
            self.announced_filled = self.announced_filled.max(filled).min(self.frontier);
        }
        self.announced_fin |= window.fin && self.is_ended();
        self.announced_on = Some(channel);
        self.due = false;
        self.due_at = None;
    }

    fn note_limit(&mut self, limit: u64, now: u64) {
        if let Some(limit) = self.origin.offset(limit) {
            self.announced_limit = self.announced_limit.max(limit);
        }
        self.announced_at = now;
    }

    /// Whether the last Window was sent on `channel`.
    pub(crate) fn was_announced_on(&self, channel: ChannelId) -> bool {
        self.announced_on == Some(channel)
    }

    /// Whether all bytes are placed and no more will come.
    pub(crate) fn is_ended(&self) -> bool {
        self.end == Some(self.frontier)
    }

    pub(crate) const fn has_unread(&self) -> bool {
        self.read < self.frontier
    }

    pub(crate) const fn frontier(&self) -> u64 {
        self.origin.sequence(self.frontier)
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) const fn claims(&self) -> usize {
        self.claims.held()
    }

    pub(crate) fn gaps(&self) -> usize {
        self.ranges.len()
    }
}
