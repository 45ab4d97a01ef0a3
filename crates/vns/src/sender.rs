//! The transmit direction: retention, the peer's window, the end.

use crate::channel::{ChannelId, ControlFrame};
use crate::claims::{Claims, Hold};
use crate::in_flight::InFlight;
use crate::sequence::Origin;
use crate::types::{Fault, Violation, Window};

/// The largest window that a peer may open, in bytes.
pub const MOST_WINDOW: u64 = 1 << 40;

/// The effects of a Window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowEffect {
    pub(crate) acknowledged: bool,
    pub(crate) opened: bool,
    pub(crate) end: bool,
}

#[derive(Debug)]
pub(crate) struct Sender {
    origin: Origin,
    in_flight: InFlight,
    holds: Claims,
    /// Bytes that the program has written.
    written: u64,
    /// The peer's window.
    limit: u64,
    /// The program writes no more.
    shut: bool,
    fin: ControlFrame,
    /// Bytes up to here were sent again because the peer had forgotten some.
    repeated: u64,
    /// The next Window asks for one.
    ask: bool,
}

impl Sender {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            origin: Origin(start),
            in_flight: InFlight::default(),
            holds: Claims::default(),
            written: 0,
            limit: 0,
            shut: false,
            fin: ControlFrame::Idle,
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

    /// Limits the stream to the bytes that the present window allows.
    pub(crate) fn cut(&mut self) {
        self.written = self.written.min(self.limit).max(self.in_flight.next());
    }

    pub(crate) fn shut(&mut self) {
        if !self.shut {
            self.shut = true;
            self.fin.schedule();
        }
    }

    pub(crate) fn on_window(&mut self, window: &Window) -> Result<WindowEffect, Violation> {
        let fin = window.fin;
        let filled = self.origin.offset(window.filled);
        let filled = filled.ok_or(Violation::BeforeStart)?;
        let limit = self.origin.offset(window.limit);
        let limit = limit.ok_or(Violation::WindowInvalid)?;
        let next = self.in_flight.next();
        if filled > next || (fin && (filled < next || !self.fin.was_sent())) {
            return Err(Violation::AcknowledgesUnsent);
        }
        if limit < filled || limit > filled + MOST_WINDOW {
            return Err(Violation::WindowInvalid);
        }
        // All values only grow, so of two Windows one is the later in each value. The later one may arrive first.
        let told = (filled, fin);
        let known = (self.in_flight.acknowledged(), self.is_ended());
        if (told > known && limit < self.limit) || (told < known && limit > self.limit) {
            return Err(Violation::WindowInvalid);
        }
        let moved = WindowEffect {
            acknowledged: filled > self.in_flight.acknowledged(),
            opened: limit > self.limit,
            end: fin && !self.is_ended(),
        };
        if moved.acknowledged {
            self.in_flight.acknowledge(filled);
        }
        if moved.end {
            self.fin.acknowledge();
        }
        self.limit = self.limit.max(limit);
        if window.again && told >= known && filled >= self.repeated {
            // Once for all that is in flight. If some of that is forgotten too, the answer to a probe will tell.
            self.repeated = next;
            self.in_flight.lose(filled, next);
        }
        Ok(moved)
    }

    /// The first window, of Open or Answer.
    pub(crate) fn on_first_window(&mut self, limit: u64) -> Result<WindowEffect, Violation> {
        self.on_window(&Window {
            filled: self.origin.0,
            limit,
            fin: false,
            ask: false,
            again: false,
        })
    }

    /// The peer was silent for long: asks for a Window. If asking before did not help, sends the oldest `segment` bytes
    /// and the end again.
    pub(crate) fn probe(&mut self, segment: u64, asked_before: bool) {
        self.ask = true;
        self.repeated = 0;
        if asked_before {
            let from = self.in_flight.acknowledged();
            self.in_flight.lose(from, from + segment);
            if self.fin.was_sent() && !self.is_ended() {
                self.fin.schedule();
            }
        }
    }

    pub(crate) const fn ask(&mut self) {
        self.ask = true;
    }

    /// Whether the next Window asks for one.
    pub(crate) const fn asks(&self) -> bool {
        self.ask
    }

    /// A Window that asks was sent.
    pub(crate) const fn on_ask_sent(&mut self) {
        self.ask = false;
    }

    /// The sequence and length of the next bytes to send: lost ones first, then new ones within the window.
    pub(crate) fn next_data(&self, budget: u32) -> Option<(u64, u32)> {
        let (start, end) = self.in_flight.first_lost().unwrap_or((
            self.in_flight.next(),
            self.written.min(self.limit).max(self.in_flight.next()),
        ));
        let length = u32::try_from(end - start).unwrap_or(u32::MAX).min(budget);
        (length > 0).then(|| (self.origin.sequence(start), length))
    }

    /// The sequence of the end, if a Fin is due.
    pub(crate) fn next_fin(&self) -> Option<u64> {
        (self.fin.is_due() && self.in_flight.next() == self.written)
            .then(|| self.origin.sequence(self.written))
    }

    /// Records Data. Returns how many of its bytes were sent before.
    pub(crate) fn data_sent(&mut self, sequence: u64, length: u32, channel: ChannelId) -> u64 {
        let Some(start) = self.origin.offset(sequence) else {
            return 0;
        };
        let end = (start + u64::from(length)).min(self.written);
        if start >= end || start > self.in_flight.next() {
            return 0;
        }
        self.in_flight.record(start, end, channel)
    }

    pub(crate) const fn fin_sent(&mut self, channel: ChannelId) {
        self.fin.sent(channel);
    }

    pub(crate) fn on_channel_lost(&mut self, channel: ChannelId) {
        self.in_flight.on_channel_lost(channel);
        self.fin.on_channel_lost(channel);
    }

    /// Whether something that the program wrote, or its end, is not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.in_flight.acknowledged() < self.written || (self.shut && !self.is_ended())
    }

    /// Whether the peer owes an acknowledgement or a window.
    pub(crate) fn awaits_peer(&self) -> bool {
        self.in_flight.acknowledged() < self.in_flight.next()
            || (self.fin.was_sent() && !self.is_ended())
            || (self.written > self.in_flight.next() && self.limit <= self.in_flight.next())
    }

    /// Whether the peer has all bytes and knows the end.
    pub(crate) fn is_ended(&self) -> bool {
        self.fin == ControlFrame::Acknowledged
    }

    /// Whether the peer has all bytes of the stream, though perhaps not the end.
    pub(crate) const fn all_acknowledged(&self) -> bool {
        self.shut && self.in_flight.acknowledged() == self.written
    }

    pub(crate) const fn is_shut(&self) -> bool {
        self.shut
    }

    pub(crate) const fn acknowledged(&self) -> u64 {
        self.origin.sequence(self.in_flight.acknowledged())
    }

    /// The sequence up to which bytes are acknowledged and not held.
    pub(crate) fn released(&self) -> u64 {
        let acknowledged = self.in_flight.acknowledged();
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
        self.origin.sequence(self.in_flight.next())
    }

    pub(crate) fn pieces(&self) -> usize {
        self.in_flight.pieces()
    }

    /// The number of bytes that can be sent now.
    pub(crate) fn sendable(&self) -> u64 {
        let fresh = self.written.min(self.limit);
        fresh.saturating_sub(self.in_flight.next()) + self.in_flight.lost_bytes()
    }
}
