//! The virtual socket: its two directions, its handshake, its end.

mod peer;
mod program;
mod time;
mod transmit;

#[cfg(test)]
mod tests;

use crate::channel::Notice;
use crate::clock::{Clock, Situation};
use crate::final_state::FinalState;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::settings::{KeepAlive, Settings};
use crate::types::{Changes, Counters, End, Reason, Start, State, TcpState, Transmit, Violation};

/// One end of a connection with a remote daemon. See the crate's description for how it is driven.
///
/// Order of the calls after any input: [`Self::take_changes`], then [`Self::next_transmit`] with [`Self::sent`] until there is nothing
/// or no room on any channel, then [`Self::next_timeout`]. An input never needs another to be made first.
#[derive(Debug)]
pub struct VirtualSocket {
    settings: Settings,
    state: State,
    /// Open, Answer: of which the latter is settled by any frame of the peer.
    handshake: Notice,
    reset: Notice,
    /// The peer's handle is known, so that frames can be addressed to it.
    named: bool,
    sender: Sender,
    receiver: Receiver,
    clock: Clock,
    /// The program has closed.
    orphan: bool,
    /// The program reads no more, though it has not closed.
    deaf: bool,
    /// The program has reset it: what the window takes goes first, as it would have with TCP, then the Reset.
    resetting: Option<Reason>,
    /// The peer's direction had ended when this one did.
    ended_second: bool,
    changes: Changes,
    counters: Counters,
}

impl VirtualSocket {
    /// A connection that a program asks for. The first thing to send is [`Transmit::Open`].
    #[must_use]
    pub fn active(settings: Settings, start: Start, now: u64) -> Self {
        let mut socket = Self::new(settings, start, State::Opening, now);
        socket.handshake.raise();
        socket
    }

    /// A connection that the peer asks for, with the `limit` of its Open. To be accepted or refused.
    ///
    /// # Errors
    /// A window that cannot be. No socket is made; the peer is to be told by a Reset.
    pub fn passive(
        settings: Settings,
        start: Start,
        limit: u64,
        now: u64,
    ) -> Result<Self, Violation> {
        let mut socket = Self::new(settings, start, State::Deciding, now);
        socket.sender.on_first_window(limit)?;
        Ok(socket)
    }

    fn new(settings: Settings, start: Start, state: State, now: u64) -> Self {
        Self {
            settings,
            state,
            handshake: Notice::Quiet,
            reset: Notice::Quiet,
            named: state != State::Opening,
            sender: Sender::new(start.transmit),
            receiver: Receiver::new(start.receive, start.capacity, now),
            clock: Clock::new(now),
            orphan: false,
            deaf: false,
            resetting: None,
            ended_second: false,
            changes: Changes::default(),
            counters: Counters::default(),
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The state TCP would call it.
    #[must_use]
    pub fn tcp_state(&self) -> TcpState {
        match self.state {
            State::Opening => return TcpState::SynSent,
            State::Deciding => return TcpState::SynReceived,
            State::Closed(_) => return TcpState::Closed,
            State::Established => {}
        }
        let (shut, ended) = (self.sender.is_shut(), self.sender.is_ended());
        match (self.receiver.is_ended(), shut, ended) {
            (false, false, _) => TcpState::Established,
            (false, true, false) => TcpState::FinWait1,
            (false, true, true) => TcpState::FinWait2,
            (true, false, _) => TcpState::CloseWait,
            (true, true, _) if self.ended_second => TcpState::LastAck,
            (true, true, _) => TcpState::Closing,
        }
    }

    /// What has changed since this was asked last.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Sequence before which the peer has all bytes for good and nobody holds any: the program's ring may be used again up to here.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.sender.released()
    }

    /// Sequence of the first byte that was never sent.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.sender.next()
    }

    /// Sequence before which all received bytes are placed: to be published to the program.
    #[must_use]
    pub const fn frontier(&self) -> u64 {
        self.receiver.frontier()
    }

    /// Whether the peer's direction has ended at [`Self::frontier`].
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.receiver.is_ended()
    }

    /// Bytes that could be sent now if there was room on a channel. For a scheduler; [`Self::next_transmit`] decides.
    #[must_use]
    pub fn sendable(&self) -> u64 {
        self.sender.sendable()
    }

    /// Bytes sent and not acknowledged.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.sender.next().wrapping_sub(self.sender.acknowledged())
    }

    /// Ranges of received bytes beyond the frontier. As long as there are any, the ring must not move to another place.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.receiver.gaps()
    }

    /// Holds that are not released. As long as there are any, the program's ring must not go back.
    #[must_use]
    pub const fn holds(&self) -> usize {
        self.sender.holds()
    }

    /// Claims that are not finished. As long as there are any, the ring must neither move nor go back.
    #[must_use]
    pub const fn claims(&self) -> usize {
        self.receiver.claims()
    }

    /// Runs of bytes in flight that are told apart by their channels, at most [`crate::MOST_FLIGHTS`].
    #[must_use]
    pub fn flights(&self) -> usize {
        self.sender.pieces()
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// SO_KEEPALIVE and its times.
    pub const fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.settings.keep_alive = keep_alive;
    }

    /// TCP_USER_TIMEOUT, in nanoseconds.
    pub const fn set_user_timeout(&mut self, timeout: Option<u64>) {
        self.settings.user_timeout = timeout;
    }

    /// Whether it is over, nothing is left to say, and nobody reads or writes its rings: it may be removed, and its
    /// [`Self::final_state`] remembered in its place.
    #[must_use]
    pub fn is_finished(&self, now: u64) -> bool {
        matches!(self.state, State::Closed(_))
            && self.next_transmit(0, now).is_none()
            && self.receiver.claims() == 0
            && self.sender.holds() == 0
    }

    /// What the table has to remember of it.
    #[must_use]
    pub fn final_state(&self) -> FinalState {
        match self.state {
            State::Closed(End::Finished) if self.receiver.is_ended() => FinalState::Finished {
                filled: self.receiver.frontier(),
                limit: self.receiver.first_window(),
            },
            State::Closed(End::Aborted(reason)) => FinalState::Reset(reason),
            _ => FinalState::Reset(Reason::NoSocket),
        }
    }

    fn situation(&self) -> Situation {
        let established = self.state == State::Established;
        let opening = self.state == State::Opening;
        Situation {
            opening,
            pending: established && self.sender.is_pending(),
            awaits_peer: (opening && self.handshake.was_sent())
                || (established && self.sender.awaits_peer()),
            orphan: self.orphan || self.resetting.is_some(),
            ending: established && self.orphan && self.sender.is_ended(),
        }
    }

    /// After every event.
    fn follow(&mut self, now: u64) {
        if self.state == State::Established && self.sender.is_ended() && self.receiver.is_ended() {
            self.end(End::Finished);
        } else if self.state == State::Established
            && let Some(reason) = self.resetting
            && self.sender.sendable() == 0
        {
            self.reset.raise();
            self.end(End::Aborted(reason));
        }
        if matches!(self.state, State::Closed(_)) {
            self.end_linger();
            return;
        }
        if self.sender.is_ended() {
            self.end_linger();
        }
        if self.state != State::Deciding {
            let Settings {
                segment,
                acknowledge_delay,
                ..
            } = self.settings;
            self.receiver.consider(segment, acknowledge_delay, now);
        }
        self.clock.follow(self.situation(), &self.settings, now);
    }

    fn shut(&mut self) {
        if !self.sender.is_shut() {
            self.ended_second = self.receiver.is_ended();
            self.sender.shut();
        }
    }

    fn end_linger(&mut self) {
        if self.clock.end_linger() {
            self.changes.insert(Changes::LINGER_OVER);
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Closed(end);
        self.changes.insert(Changes::CLOSED);
    }

    /// Gives the connection up, with a Reset as soon as the peer can be named.
    fn give_up(&mut self, reason: Reason, now: u64) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        self.reset.raise();
        self.end(End::Aborted(reason));
        self.follow(now);
    }

    /// The Reset that ends it.
    fn reset_to_send(&self) -> Option<Transmit> {
        match self.state {
            State::Closed(End::Aborted(reason)) if self.reset.is_due() => {
                Some(Transmit::Reset { reason })
            }
            _ => None,
        }
    }
}
