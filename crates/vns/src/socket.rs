//! The virtual socket: its two directions, its handshake, its end.

mod peer;
mod program;
mod time;
mod transmit;

#[cfg(test)]
mod tests;

use crate::channel::ControlFrame;
use crate::clock::{Clock, Situation};
use crate::final_state::FinalState;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::settings::{KeepAlive, Settings};
use crate::types::{Changes, Counters, End, Reason, Start, State, TcpState, Transmit, Violation};

/// One end of a connection with a remote daemon. See the crate's description for its use.
///
/// The order of calls after any input: [`Self::take_changes`], then [`Self::next_transmit`] with [`Self::sent`] until
/// there is nothing to send or no room on any channel, then [`Self::next_timeout`]. No input requires another one
/// first.
#[derive(Debug)]
pub struct VirtualSocket {
    settings: Settings,
    state: State,
    /// The state of Open or Answer. Any frame of the peer acknowledges the Answer.
    handshake: ControlFrame,
    reset: ControlFrame,
    /// The peer's handle is known, so that frames can be addressed to it.
    peer_handle_known: bool,
    sender: Sender,
    receiver: Receiver,
    clock: Clock,
    /// The program has closed.
    orphan: bool,
    /// The program reads no more, though it has not closed.
    read_shut: bool,
    /// The program has reset the connection: bytes that the window allows are sent first, as with TCP, then the Reset.
    resetting: Option<Reason>,
    /// The peer's direction had ended before this one did.
    ended_second: bool,
    changes: Changes,
    counters: Counters,
}

impl VirtualSocket {
    /// A connection that a program requests. The first frame is [`Transmit::Open`].
    #[must_use]
    pub fn active(settings: Settings, start: Start, now: u64) -> Self {
        let mut socket = Self::new(settings, start, State::Opening, now);
        socket.handshake.schedule();
        socket
    }

    /// A connection that the peer requests, with the `limit` of its Open. It must be accepted or refused.
    ///
    /// # Errors
    /// An invalid window. No socket is made; the peer must get a Reset.
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
            handshake: ControlFrame::Idle,
            reset: ControlFrame::Idle,
            peer_handle_known: state != State::Opening,
            sender: Sender::new(start.transmit),
            receiver: Receiver::new(start.receive, start.capacity, now),
            clock: Clock::new(now),
            orphan: false,
            read_shut: false,
            resetting: None,
            ended_second: false,
            changes: Changes::default(),
            counters: Counters::default(),
        }
    }

    /// The state of the connection.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The corresponding state of TCP.
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

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The sequence up to which the peer has all bytes and none is held: the program's ring may be used again up to
    /// here.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.sender.released()
    }

    /// The sequence of the first byte that was never sent.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.sender.next()
    }

    /// The sequence up to which all received bytes are placed: they can be published to the program.
    #[must_use]
    pub const fn frontier(&self) -> u64 {
        self.receiver.frontier()
    }

    /// Whether the peer's direction has ended at [`Self::frontier`].
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.receiver.is_ended()
    }

    /// The number of bytes that could be sent now if a channel had room. This is for a scheduler;
    /// [`Self::next_transmit`] decides.
    #[must_use]
    pub fn sendable(&self) -> u64 {
        self.sender.sendable()
    }

    /// The number of bytes that were sent and are not acknowledged.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.sender.next().wrapping_sub(self.sender.acknowledged())
    }

    /// The number of ranges of received bytes beyond the frontier. While there are any, the ring must not move.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.receiver.gaps()
    }

    /// The number of holds. While there are any, the program's ring must not be released.
    #[must_use]
    pub const fn holds(&self) -> usize {
        self.sender.holds()
    }

    /// The number of claims. While there are any, the ring must neither move nor be released.
    #[must_use]
    pub const fn claims(&self) -> usize {
        self.receiver.claims()
    }

    /// The number of ranges in flight with different channels, at most [`crate::MOST_IN_FLIGHT_RANGES`].
    #[must_use]
    pub fn in_flight_ranges(&self) -> usize {
        self.sender.pieces()
    }

    /// The counters.
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

    /// Whether the connection has ended, nothing is left to send, and its rings are not in use. It may be removed then,
    /// and its [`Self::final_state`] kept in its place.
    #[must_use]
    pub fn is_finished(&self, now: u64) -> bool {
        matches!(self.state, State::Closed(_))
            && self.next_transmit(0, now).is_none()
            && self.receiver.claims() == 0
            && self.sender.holds() == 0
    }

    /// The state that the table keeps after the removal.
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

    /// Updates the state after every event.
    fn update(&mut self, now: u64) {
        if self.state == State::Established && self.sender.is_ended() && self.receiver.is_ended() {
            self.end(End::Finished);
        } else if self.state == State::Established
            && let Some(reason) = self.resetting
            && self.sender.sendable() == 0
        {
            self.reset.schedule();
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
        self.clock.update(self.situation(), &self.settings, now);
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

    /// Gives the connection up, and sends a Reset as soon as frames can be addressed to the peer.
    fn give_up(&mut self, reason: Reason, now: u64) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        self.reset.schedule();
        self.end(End::Aborted(reason));
        self.update(now);
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
