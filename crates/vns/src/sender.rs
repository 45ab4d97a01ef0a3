//! The transmit direction: retention, the peer's window, the end.

use crate::channel::{ChannelId, Notice};
use crate::claims::{Claims, Hold};
use crate::flight::Flights;
use crate::sequence::Origin;
use crate::types::{Fault, Violation, Window};

/// Largest window a peer may open, in bytes.
pub const MOST_WINDOW: u64 = 1 << 40;

/// What a Window has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) acknowledged: bool,
    pub(crate) opened: bool,
    pub(crate) end: bool,
}

#[derive(Debug)]
pub(crate) struct Sender {
    origin: Origin,
    flights: Flights,
    holds: Claims,
    /// Bytes that the program has written.
    written: u64,
    /// The peer's window.
    limit: u64,
    /// The program writes no more.
    shut: bool,
    fin: Notice,
    /// What the peer had forgotten before was sent again up to here.
    repeated: u64,
    /// The next Window asks for one.
    ask: bool,
}

impl Sender {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            origin: Origin(start),
            flights: Flights::default(),
            holds: Claims::default(),
            written: 0,
            limit: 0,
            shut: false,
            fin: Notice::Quiet,
            repeated: 0,
            ask: false,
        }
    }

    pub(crate) fn on_written(&mut self, sequence: u64) -> Result<(), Fault> {
        let written = self.origin.offset(sequence).ok_or(Fault)?;
        if written < self.written || (self.shut && written != self.written) {
            return Err(Fault);
        }
        self.written = written;
        Ok(())
    }

    /// No more is sent than the window takes now.
    pub(crate) fn cut(&mut self) {
        self.written = self.written.min(self.limit).max(self.flights.next());
    }

    pub(crate) fn shut(&mut self) {
        if !self.shut {
            self.shut = true;
            self.fin.raise();
        }
    }

    pub(crate) fn on_window(&mut self, window: &Window) -> Result<Moved, Violation> {
        let fin = window.fin;
        let filled = self.origin.offset(window.filled);
        let filled = filled.ok_or(Violation::BeforeStart)?;
        let limit = self.origin.offset(window.limit);
        let limit = limit.ok_or(Violation::WindowInvalid)?;
        let next = self.flights.next();
        if filled > next || (fin && (filled < next || !self.fin.was_sent())) {
            return Err(Violation::AcknowledgesUnsent);
        }
        if limit < filled || limit > filled + MOST_WINDOW {
            return Err(Violation::WindowInvalid);
        }
        // All only grow, so of two Windows one is the later in each; the later may come first.
        let told = (filled, fin);
        let known = (self.flights.acknowledged(), self.is_ended());
        if (told > known && limit < self.limit) || (told < known && limit > self.limit) {
            return Err(Violation::WindowInvalid);
        }
        let moved = Moved {
            acknowledged: filled > self.flights.acknowledged(),
            opened: limit > self.limit,
            end: fin && !self.is_ended(),
        };
        if moved.acknowledged {
            self.flights.acknowledge(filled);
        }
        if moved.end {
            self.fin.settle();
        }
        self.limit = self.limit.max(limit);
        if window.again && told >= known && filled >= self.repeated {
            // Once for all that is in flight; if that is forgotten too, a probe's answer will say so.
            self.repeated = next;
            self.flights.lose(filled, next);
        }
        Ok(moved)
    }

    /// The first window, of Open or Answer.
    pub(crate) fn on_first_window(&mut self, limit: u64) -> Result<Moved, Violation> {
        self.on_window(&Window {
            filled: self.origin.0,
            limit,
            fin: false,
            ask: false,
            again: false,
        })
    }

    /// Nothing was heard for long: asks. If asking did not help, says the oldest `segment` bytes and the end again.
    pub(crate) fn suspect(&mut self, segment: u64, asked_before: bool) {
        self.ask = true;
        self.repeated = 0;
        if asked_before {
            let from = self.flights.acknowledged();
            self.flights.lose(from, from + segment);
            if self.fin.was_sent() && !self.is_ended() {
                self.fin.raise();
            }
        }
    }

    pub(crate) const fn ask(&mut self) {
        self.ask = true;
    }

    /// Whether the next Window is to ask for one.
    pub(crate) const fn asks(&self) -> bool {
        self.ask
    }

    /// A Window that asks was sent.
    pub(crate) const fn asked(&mut self) {
        self.ask = false;
    }

    /// Sequence and length of the next bytes to send: lost ones first, then new ones within the window.
    pub(crate) fn next_data(&self, budget: u32) -> Option<(u64, u32)> {
        let (start, end) = self.flights.first_lost().unwrap_or((
            self.flights.next(),
            self.written.min(self.limit).max(self.flights.next()),
        ));
        let length = u32::try_from(end - start).unwrap_or(u32::MAX).min(budget);
        (length > 0).then(|| (self.origin.sequence(start), length))
    }

    /// The end's sequence, if it is time to say it.
    pub(crate) fn next_fin(&self) -> Option<u64> {
        (self.fin.is_due() && self.flights.next() == self.written)
            .then(|| self.origin.sequence(self.written))
    }

    /// Records Data; gives how many of its bytes were sent before.
    pub(crate) fn data_sent(&mut self, sequence: u64, length: u32, channel: ChannelId) -> u64 {
        let Some(start) = self.origin.offset(sequence) else {
            return 0;
        };
        let end = (start + u64::from(length)).min(self.written);
        if start >= end || start > self.flights.next() {
            return 0;
        }
        self.flights.record(start, end, channel)
    }

    pub(crate) const fn fin_sent(&mut self, channel: ChannelId) {
        self.fin.sent(channel);
    }

    pub(crate) fn on_channel_lost(&mut self, channel: ChannelId) {
        self.flights.on_channel_lost(channel);
        self.fin.on_channel_lost(channel);
    }

    /// Something the program wrote, or its end, is not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.flights.acknowledged() < self.written || (self.shut && !self.is_ended())
    }

    /// The peer owes an acknowledgement or a window.
    pub(crate) fn awaits_peer(&self) -> bool {
        self.flights.acknowledged() < self.flights.next()
            || (self.fin.was_sent() && !self.is_ended())
            || (self.written > self.flights.next() && self.limit <= self.flights.next())
    }

    /// The peer has all bytes and knows the end.
    pub(crate) fn is_ended(&self) -> bool {
        self.fin == Notice::Settled
    }

    /// The peer has all bytes that it is ever sent, though perhaps not the end.
    pub(crate) const fn all_acknowledged(&self) -> bool {
        self.shut && self.flights.acknowledged() == self.written
    }

    pub(crate) const fn is_shut(&self) -> bool {
        self.shut
    }

    pub(crate) const fn acknowledged(&self) -> u64 {
        self.origin.sequence(self.flights.acknowledged())
    }

    /// What is acknowledged and held by nobody.
    pub(crate) fn released(&self) -> u64 {
        let acknowledged = self.flights.acknowledged();
        let held = self.holds.lowest().unwrap_or(acknowledged);
        self.origin.sequence(acknowledged.min(held))
    }

    pub(crate) fn hold(&mut self, sequence: u64) -> Option<Hold> {
        let start = self.origin.offset(sequence)?;
        self.holds.take(start, u64::MAX).map(Hold)
    }

    pub(crate) fn release(&mut self, hold: Hold) {
        self.holds.finish(hold.0);
    }

    pub(crate) const fn holds(&self) -> usize {
        self.holds.held()
    }

    pub(crate) const fn next(&self) -> u64 {
        self.origin.sequence(self.flights.next())
    }

    pub(crate) fn pieces(&self) -> usize {
        self.flights.pieces()
    }

    /// Bytes that are to be sent and may be.
    pub(crate) fn sendable(&self) -> u64 {
        let fresh = self.written.min(self.limit);
        fresh.saturating_sub(self.flights.next()) + self.flights.lost_bytes()
    }
}
