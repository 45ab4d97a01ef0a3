//! The receive direction: where bytes belong, what is contiguous, the window, the end, and when a Window is due.

use crate::channel::ChannelId;
use crate::claims::{Claim, Claims};
use crate::ranges::Ranges;
use crate::sender::MOST_WINDOW;
use crate::sequence::Origin;
use crate::types::{Fault, Transmit, Violation, Window};

/// Where arriving bytes go.
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
    /// The program has read up to here.
    read: u64,
    /// All before it is placed.
    frontier: u64,
    ranges: Ranges,
    claims: Claims,
    /// Highest byte that was ever sent to us.
    highest: u64,
    /// Where the stream ends, once known.
    end: Option<u64>,
    /// Bytes up to here had come and were forgotten.
    forgotten: u64,
    /// What the peer was told last.
    told_filled: u64,
    told_fin: bool,
    told_limit: u64,
    told_at: u64,
    told_on: Option<ChannelId>,
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
            told_filled: 0,
            told_fin: false,
            // What Open or Answer will say.
            told_limit: 0,
            told_at: now,
            told_on: None,
            due: false,
            due_at: None,
        }
    }

    pub(crate) fn on_data(&mut self, sequence: u64, length: u32) -> Result<Accepted, Violation> {
        let from = self.origin.offset(sequence).ok_or(Violation::BeforeStart)?;
        let to = from + u64::from(length);
        if to > self.told_limit {
            return Err(Violation::WindowExceeded);
        }
        if self.end.is_some_and(|end| to > end) {
            return Err(Violation::DataAfterEnd);
        }
        self.highest = self.highest.max(to);
        let Some((start, end)) = self.ranges.missing(from.max(self.frontier), to) else {
            // Said again because our Window was lost, or late.
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

    /// Bytes were written; gives whether the frontier has moved, and how many bytes had to be forgotten.
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

    /// Bytes before `end` have to come again; the peer is told at once, and then with each Window.
    fn forget(&mut self, end: u64) {
        self.due |= !self.says_again();
        self.forgotten = self.forgotten.max(end);
    }

    const fn says_again(&self) -> bool {
        self.forgotten > self.frontier
    }

    pub(crate) fn finish(&mut self, claim: Claim) {
        self.claims.finish(claim);
    }

    pub(crate) fn on_fin(&mut self, sequence: u64) -> Result<(), Violation> {
        let end = self.origin.offset(sequence).ok_or(Violation::BeforeStart)?;
        if end > self.told_limit {
            return Err(Violation::WindowExceeded);
        }
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(Violation::EndMoved);
        }
        self.end = Some(end);
        // Now if it is contiguous or said again; otherwise it is when the last byte comes.
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

    /// What may be announced: never less than was, and never so much that a claimed place would be used again.
    fn limit(&self) -> u64 {
        let keep = self
            .claims
            .lowest()
            .map_or(self.read, |lowest| lowest.min(self.read));
        (keep + self.capacity).max(self.told_limit)
    }

    /// Decides whether what has changed is worth a Window.
    pub(crate) fn consider(&mut self, segment: u32, delay: u64, now: u64) {
        if self.due {
            return;
        }
        let (arrived, opened) = self.untold();
        if arrived == 0 && opened == 0 {
            return;
        }
        let much = (self.capacity / 4).min(2 * u64::from(segment));
        let later = self.told_at.saturating_add(delay);
        // A closed window is opened at once, but not byte by byte.
        let was_closed = self.told_limit == self.frontier && opened > 0 && later <= now;
        if arrived >= much || opened >= much || was_closed {
            self.due = true;
        } else if self.due_at.is_none() {
            let at = if self.told_limit == self.frontier {
                later
            } else {
                now.saturating_add(delay)
            };
            self.due_at = Some(at);
        }
    }

    /// What the peer does not know: acknowledgement and window, in bytes.
    fn untold(&self) -> (u64, u64) {
        let opened = if self.is_ended() {
            0
        } else {
            self.limit() - self.told_limit
        };
        let fin = u64::from(self.is_ended() != self.told_fin);
        (self.frontier - self.told_filled + fin, opened)
    }

    /// What was due later may be due now.
    pub(crate) fn on_time(&mut self, now: u64) {
        self.due |= self.due_at.is_some_and(|at| at <= now);
    }

    pub(crate) const fn say_window(&mut self) {
        self.due = true;
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.due || self.due_at.is_some_and(|at| at <= now)
    }

    /// When a Window is due, if not now.
    pub(crate) const fn due_at(&self) -> Option<u64> {
        if self.due { None } else { self.due_at }
    }

    /// The Window to say.
    pub(crate) fn window(&self, ask: bool) -> Transmit {
        Transmit::Window(Window {
            filled: self.origin.sequence(self.frontier),
            limit: self.first_window(),
            fin: self.is_ended(),
            ask,
            again: self.says_again(),
        })
    }

    /// The limit to say in Open and Answer.
    pub(crate) fn first_window(&self) -> u64 {
        self.origin.sequence(self.limit())
    }

    /// The peer was told the limit of Open or Answer.
    pub(crate) fn told_first(&mut self, limit: u64, now: u64) {
        self.told_limit(limit, now);
        if self.untold() == (0, 0) {
            self.due = false;
            self.due_at = None;
        }
    }

    /// The peer was told a Window.
    pub(crate) fn told(&mut self, window: &Window, channel: ChannelId, now: u64) {
        self.told_limit(window.limit, now);
        if let Some(filled) = self.origin.offset(window.filled) {
            self.told_filled = self.told_filled.max(filled).min(self.frontier);
        }
        self.told_fin |= window.fin && self.is_ended();
        self.told_on = Some(channel);
        self.due = false;
        self.due_at = None;
    }

    fn told_limit(&mut self, limit: u64, now: u64) {
        if let Some(limit) = self.origin.offset(limit) {
            self.told_limit = self.told_limit.max(limit);
        }
        self.told_at = now;
    }

    /// Whether what was told last was told on `channel`.
    pub(crate) fn was_told_on(&self, channel: ChannelId) -> bool {
        self.told_on == Some(channel)
    }

    /// All bytes are there and no more will come.
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
