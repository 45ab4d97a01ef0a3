//! What the daemon reads of a program whose peer is on another host: the bytes that it wrote and holds back, how far it
//! has read, and how it ended.

use super::{Acceptance, FIRST_RING_LOG2, GROWTH, State};
use netchannel_abi::link::{MOST_RING_LOG2, side_flags};
use netchannel_ring::Fault;
use netchannel_service::class;
use netchannel_service::lane::Lane;
use netchannel_service::timers::{NEVER, nanoseconds};
use netchannel_vns::{Linger, Reason, VirtualSocket};

impl State {
    /// Reads the program's state.
    pub fn look(&mut self, now: u64) {
        let Some(lane) = &mut self.lane else { return };
        if matches!(self.acceptance, Acceptance::Known) && !self.active && lane.is_left_unaccepted()
        {
            self.acceptance = Acceptance::Lost(now);
        }
        if !matches!(self.acceptance, Acceptance::Known | Acceptance::Settled) {
            return;
        }
        // The flags are loaded before the bytes: a program that has set FIN or has ended writes no more.
        let flags = lane.peer_flags();
        let word = lane.hints_word();
        if word != self.hints_word {
            (self.hints_word, self.hints, self.hints_changed) = (word, class::hints(word), true);
        }
        let gone = lane.has_hung_up() && flags & side_flags::CLOSED == 0;
        let resets = flags & side_flags::RESET != 0;
        let ends = gone && lane.ended_by_reset();
        if flags & side_flags::SHUT_READ != 0 {
            self.socket.shutdown_read();
        }
        // Before the bytes: a hold that expires behind the look for them has its timer.
        self.held_until = lane
            .hold_time_left()
            .map_or(NEVER, |left| now.saturating_add(nanoseconds(left)));
        if take_words(lane, &mut self.socket, now).is_err() {
            return self.socket.abort(Reason::ProgramFault, now);
        }
        if resets {
            self.socket.reset(Reason::Aborted, now);
        } else if ends {
            self.socket.reset(Reason::ProgramEnded, now);
        } else if gone || flags & side_flags::CLOSED != 0 {
            self.socket.close(Linger::Background, now);
        } else if flags & side_flags::FIN != 0 {
            self.socket.shutdown_write(now);
        }
    }

    /// Called before bytes arrive. Whether the program refuses bytes counts from the moment it said so, not from the
    /// next look.
    pub fn look_before_arrival(&mut self, now: u64) {
        let flags = self.lane.as_ref().map_or(0, Lane::peer_flags);
        if flags & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT {
            self.look(now);
        }
    }

    /// Bytes that the program held back may be released by now: any frame of the peer releases them.
    pub fn check_held_bytes(&mut self, now: u64) {
        if self.held_until != NEVER
            && self
                .lane
                .as_ref()
                .is_none_or(|lane| lane.hold_time_left().is_none())
        {
            self.look(now);
        }
    }

    /// The time of the next timer.
    pub fn next_timeout(&self) -> u64 {
        let timeout = self.socket.next_timeout().unwrap_or(NEVER);
        if self.lane.is_some() {
            timeout
                .min(self.held_until)
                .min(self.acceptance.next_timeout())
        } else {
            timeout
        }
    }

    /// Reads how far the program has read.
    pub fn check_read_position(&mut self, now: u64) {
        let Some(lane) = &mut self.lane else { return };
        let read = lane.limit().map(|_| lane.read_by_program());
        if read.is_ok_and(|read| self.socket.on_read(read, now).is_ok()) {
            return;
        }
        self.socket.abort(Reason::ProgramFault, now);
    }

    /// Requests news from the program when it has read, if so much is unread that the window suffers.
    pub fn request_space_news(&mut self, now: u64) {
        let Some(lane) = &mut self.lane else { return };
        let unread = |lane: &Lane| lane.published() - lane.read_by_program();
        if unread(lane) > lane.capacity() / 2 {
            lane.request_space_news();
            self.check_read_position(now);
        }
    }

    /// Bytes up to `end` are about to arrive, or have: enlarges a ring that the peer fills, where nothing lies in it out of
    /// order.
    pub fn make_room(&mut self, end: u64, most: u32, now: u64) {
        let Some(lane) = &mut self.lane else { return };
        let capacity = lane.capacity();
        let Ok(limit) = lane.limit() else { return };
        if limit.saturating_sub(end) >= capacity / 4
            || capacity >= 1 << most
            || self.socket.gaps() > 0
            || self.socket.claims() > 0
        {
            return;
        }
        let log2 = capacity.ilog2() + GROWTH;
        let log2 = log2.clamp(FIRST_RING_LOG2, most.min(MOST_RING_LOG2));
        if lane.grow_to(log2) == Ok(true) {
            self.socket.on_capacity(lane.capacity(), now);
        }
    }
}

fn take_words(lane: &mut Lane, socket: &mut VirtualSocket, now: u64) -> Result<(), Fault> {
    socket
        .on_written(lane.frontier()?, now)
        .map_err(|_| Fault)?;
    lane.limit()?;
    socket
        .on_read(lane.read_by_program(), now)
        .map_err(|_| Fault)
}
