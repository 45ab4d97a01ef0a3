//! What is sent next, and what was sent on which channel.

use super::VirtualSocket;
use crate::channel::ChannelId;
use crate::claims::Hold;
use crate::types::{Changes, End, State, Transmit};

impl VirtualSocket {
    /// The next frame to send, with at most `budget` bytes of payload; with 0 only frames without any.
    ///
    /// It stays the next until [`Self::sent`] says that it was committed to a channel. Order: Reset; Open or Answer; Window; what was
    /// lost; new bytes; Fin.
    #[must_use]
    pub fn next_transmit(&self, budget: u32, now: u64) -> Option<Transmit> {
        match self.state {
            State::Deciding => None,
            State::Opening => {
                let limit = self.receiver.first_window();
                self.handshake.is_due().then_some(Transmit::Open { limit })
            }
            State::Established => self.next_of_established(budget, now),
            State::Closed(_) if !self.named => None,
            // The peer may have missed that its end was taken.
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

    /// `transmit`, just given by [`Self::next_transmit`] under the same lock, was committed to `channel`.
    ///
    /// Whoever commits to a channel that is found lost afterwards must say so by [`Self::on_channel_lost`] afterwards too.
    pub fn sent(&mut self, transmit: &Transmit, channel: ChannelId, now: u64) {
        match *transmit {
            Transmit::Open { limit } | Transmit::Answer { limit } => {
                self.handshake.sent(channel);
                self.receiver.told_first(limit, now);
            }
            Transmit::Data { sequence, length } => {
                self.counters.bytes_repeated += self.sender.data_sent(sequence, length, channel);
            }
            Transmit::Window(ref window) => {
                self.receiver.told(window, channel, now);
                if window.ask {
                    self.sender.asked();
                }
                self.counters.windows += 1;
            }
            Transmit::Fin { .. } => self.sender.fin_sent(channel),
            Transmit::Reset { .. } => self.reset.sent(channel),
        }
        self.follow(now);
    }

    /// Keeps all bytes from `sequence` on in the ring until [`Self::release`], also if they are acknowledged before: for who takes
    /// them from the ring outside of the lock. One hold on the first is enough for many. `None` if there are [`crate::MOST_CLAIMS`]
    /// already; then the bytes are to be taken under the lock.
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
        self.follow(now);
    }

    /// `channel` is gone with what was on it. To be told to every socket of the peer: also one that has sent nothing there says its
    /// Window again, so that it learns of a Reset that went down with the channel.
    pub fn on_channel_lost(&mut self, channel: ChannelId, now: u64) {
        self.handshake.on_channel_lost(channel);
        self.reset.on_channel_lost(channel);
        match self.state {
            State::Established => {
                self.sender.on_channel_lost(channel);
                self.receiver.say_window();
            }
            State::Closed(End::Finished) if self.receiver.was_told_on(channel) => {
                self.receiver.say_window();
            }
            _ => {}
        }
        self.follow(now);
    }

    /// What is not acknowledged takes up much of the program's room: the peer is to say at once what it has. Otherwise it may take its
    /// time ([`crate::Settings::acknowledge_delay`]).
    pub fn ask(&mut self, now: u64) {
        if self.state == State::Established {
            self.sender.ask();
            self.follow(now);
        }
    }
}
