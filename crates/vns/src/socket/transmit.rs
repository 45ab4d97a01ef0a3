//! The next frame to send, and the channels of sent frames.

use super::VirtualSocket;
use crate::channel::ChannelId;
use crate::claims::Hold;
use crate::types::{Changes, End, State, Transmit};

impl VirtualSocket {
    /// The next frame to send, with at most `budget` bytes of payload. With 0 only frames without payload are returned.
    ///
    /// It stays the next one until [`Self::sent`] is called. The order is: Reset; Open or Answer; Window; lost bytes;
    /// new bytes; Fin.
    #[must_use]
    pub fn next_transmit(&self, budget: u32, now: u64) -> Option<Transmit> {
        match self.state {
            State::Deciding => None,
            State::Opening => {
                let limit = self.receiver.first_window();
                self.handshake.is_due().then_some(Transmit::Open { limit })
            }
            State::Established => self.next_of_established(budget, now),
            State::Closed(_) if !self.peer_handle_known => None,
            // The peer may not know that its end was received.
            State::Closed(End::Finished) if self.receiver.is_ended() => self.next_window(now),
            State::Closed(_) => self.reset_to_send(),
        }
    }

    fn next_of_established(&self, budget: u32, now: u64) -> Option<Transmit> {
        if self.handshake.is_due() {
            let limit = self.receiver.first_window();
            return Some(Transmit::Answer { limit });
        }
        if let Some(window) = self.next_window(now) {
            return Some(window);
        }
        if let Some((sequence, length)) = self.sender.next_data(budget) {
            return Some(Transmit::Data { sequence, length });
        }
        let sequence = self.sender.next_fin()?;
        Some(Transmit::Fin { sequence })
    }

    fn next_window(&self, now: u64) -> Option<Transmit> {
        let ask = self.sender.asks() && self.state == State::Established;
        (ask || self.receiver.is_due(now)).then(|| self.receiver.window(ask))
    }

    /// `transmit`, just returned by [`Self::next_transmit`] under the same lock, was assigned to `channel`.
    ///
    /// If that channel turns out to be lost, [`Self::on_channel_lost`] must be called after this.
    pub fn sent(&mut self, transmit: &Transmit, channel: ChannelId, now: u64) {
        match *transmit {
            Transmit::Open { limit } | Transmit::Answer { limit } => {
                self.handshake.sent(channel);
                self.receiver.on_first_limit_sent(limit, now);
            }
            Transmit::Data { sequence, length } => {
                self.counters.bytes_repeated += self.sender.data_sent(sequence, length, channel);
            }
            Transmit::Window(ref window) => {
                self.receiver.on_window_sent(window, channel, now);
                if window.ask {
                    self.sender.on_ask_sent();
                }
                self.counters.windows += 1;
            }
            Transmit::Fin { .. } => self.sender.fin_sent(channel),
            Transmit::Reset { .. } => self.reset.sent(channel),
        }
        self.update(now);
    }

    /// Keeps all bytes from `sequence` on in the ring until [`Self::release`], even if they are acknowledged before:
    /// for a worker that takes them from the ring outside of the lock. One hold on the first byte is enough for many.
    /// `None` if there are [`crate::MOST_CLAIMS`] already; the bytes must be taken under the lock then.
    #[must_use]
    pub fn hold(&mut self, sequence: u64) -> Option<Hold> {
        self.sender.hold(sequence)
    }

    /// The bytes were taken, or never will be. [`Self::acknowledged`] may move.
    pub fn release(&mut self, hold: Hold, now: u64) {
        let before = self.sender.released();
        self.sender.release(hold);
        if self.sender.released() != before && !matches!(self.state, State::Closed(_)) {
            self.changes.insert(Changes::ACKNOWLEDGED);
        }
        self.update(now);
    }

    /// `channel` is lost with all frames on it. This must be called for every socket of the peer: a socket that has
    /// sent nothing there sends its Window again, so that it learns of a Reset that was lost with the channel.
    pub fn on_channel_lost(&mut self, channel: ChannelId, now: u64) {
        self.handshake.on_channel_lost(channel);
        self.reset.on_channel_lost(channel);
        match self.state {
            State::Established => {
                self.sender.on_channel_lost(channel);
                self.receiver.schedule_window();
            }
            State::Closed(End::Finished) if self.receiver.was_announced_on(channel) => {
                self.receiver.schedule_window();
            }
            _ => {}
        }
        self.update(now);
    }

    /// Unacknowledged bytes take up much of the program's ring: asks the peer for an acknowledgement at once. Otherwise
    /// the peer may delay it ([`crate::Settings::acknowledge_delay`]).
    pub fn ask(&mut self, now: u64) {
        if self.state == State::Established {
            self.sender.ask();
            self.update(now);
        }
    }
}
