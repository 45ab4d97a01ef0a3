//! Frames of the peer. They are not trusted, and none of them causes a panic.

use super::VirtualSocket;
use crate::channel::ControlFrame;
use crate::claims::Claim;
use crate::receiver::Accepted;
use crate::sender::WindowEffect;
use crate::types::{Changes, End, Placement, Reason, State, Violation, Window};

impl VirtualSocket {
    /// Open came again for this connection: the same answer is sent again.
    ///
    /// # Errors
    /// An invalid window. The connection is reset.
    pub fn on_open_again(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        match self.state {
            State::Established if self.handshake != ControlFrame::Acknowledged => {
                self.handshake.schedule()
            }
            State::Closed(End::Aborted(_)) => self.reset.schedule(),
            _ => {}
        }
        if matches!(self.state, State::Closed(_)) {
            return Ok(());
        }
        self.first_window(limit, now)
    }

    /// The peer has accepted, with its first window.
    ///
    /// # Errors
    /// An invalid window, or an answer without a request. The connection is reset.
    pub fn on_answer(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        self.peer_handle_known = true;
        if let State::Closed(end) = self.state {
            // The connection was given up before the answer came: the peer is told now.
            if matches!(end, End::Aborted(_)) {
                self.reset.schedule();
            }
            return Ok(());
        }
        if self.state == State::Deciding || !self.handshake.was_sent() {
            return Err(self.violation(Violation::NotOpen, now));
        }
        self.clock.on_peer_frame(now);
        if self.state == State::Opening {
            self.state = State::Established;
            self.handshake.acknowledge();
            self.changes.insert(Changes::ESTABLISHED);
            self.clock.progress();
        }
        self.first_window(limit, now)
    }

    /// `length` bytes from `sequence` are arriving.
    ///
    /// # Errors
    /// Bytes outside of the window or after the end. The connection is reset.
    pub fn on_data(
        &mut self,
        sequence: u64,
        length: u32,
        now: u64,
    ) -> Result<Placement, Violation> {
        if !self.accepts_frame(now)? {
            // A peer that repeats something does not know how the connection ended.
            self.repeat_final_frame();
            return Ok(Placement::Discard);
        }
        let accepted = match self.receiver.on_data(sequence, length) {
            Ok(accepted) => accepted,
            Err(violation) => return Err(self.violation(violation, now)),
        };
        let placement = match accepted {
            Accepted::Write {
                start,
                end,
                skip,
                claim,
            } => {
                if self.is_unwanted() {
                    self.receiver.finish(claim);
                    self.give_up(Reason::Aborted, now);
                    return Ok(Placement::Discard);
                }
                // Both are at most `length`.
                let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
                self.counters.bytes_duplicate += u64::from(length) - (end - start);
                Placement::Write {
                    skip: small(skip),
                    sequence: self.receiver.origin().sequence(start),
                    length: small(end - start),
                    claim,
                }
            }
            Accepted::Duplicate => {
                self.counters.bytes_duplicate += u64::from(length);
                Placement::Discard
            }
            Accepted::Dropped => {
                self.counters.bytes_dropped += u64::from(length);
                Placement::Discard
            }
        };
        self.update(now);
        Ok(placement)
    }

    /// `length` bytes from `sequence` were written: all of a claim, or its next part. The frontier may move.
    pub fn placed(&mut self, claim: &Claim, sequence: u64, length: u32, now: u64) {
        let (moved, forgotten) = self.receiver.placed(claim, sequence, length);
        self.counters.bytes_dropped += forgotten;
        if moved && !matches!(self.state, State::Closed(_)) {
            if self.is_unwanted() {
                return self.give_up(Reason::Aborted, now);
            }
            self.changes.insert(Changes::FRONTIER);
            if self.receiver.is_ended() {
                self.changes.insert(Changes::AT_END);
            }
        }
        self.update(now);
    }

    /// The claim is written, or given up in part because its channel was lost.
    pub fn finish(&mut self, claim: Claim, now: u64) {
        self.receiver.finish(claim);
        self.update(now);
    }

    /// The peer acknowledges and opens its window.
    ///
    /// # Errors
    /// An invalid acknowledgement or window. The connection is reset.
    pub fn on_window(&mut self, window: Window, now: u64) -> Result<(), Violation> {
        if !self.accepts_frame(now)? {
            if window.ask {
                self.repeat_final_frame();
            }
            return Ok(());
        }
        if window.ask {
            self.receiver.schedule_window();
        }
        let moved = self.sender.on_window(&window);
        self.after_window(moved, now)
    }

    /// The peer's direction ends at `sequence`.
    ///
    /// # Errors
    /// An end beyond the window, or an end that contradicts what came before. The connection is reset.
    pub fn on_fin(&mut self, sequence: u64, now: u64) -> Result<(), Violation> {
        if !self.accepts_frame(now)? {
            self.repeat_final_frame();
            return Ok(());
        }
        let before = self.receiver.is_ended();
        if let Err(violation) = self.receiver.on_fin(sequence) {
            return Err(self.violation(violation, now));
        }
        if !before && self.receiver.is_ended() {
            self.changes.insert(Changes::AT_END);
        }
        self.update(now);
        Ok(())
    }

    /// The peer has reset or refused the connection. Bytes that the program has not read are discarded.
    pub fn on_reset(&mut self, reason: Reason, now: u64) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        // The peer has forgotten the connection, and only the acknowledgement of our end is missing: so the peer had
        // received the end.
        let forgotten = reason == Reason::NoSocket
            && self.receiver.is_ended()
            && self.sender.all_acknowledged();
        self.end(if forgotten {
            End::Finished
        } else {
            End::Reset(reason)
        });
        self.update(now);
    }

    /// Whether the connection still accepts a frame other than Open and Reset.
    fn accepts_frame(&mut self, now: u64) -> Result<bool, Violation> {
        match self.state {
            State::Closed(_) => Ok(false),
            State::Deciding => Err(self.violation(Violation::NotOpen, now)),
            State::Opening => {
                self.clock.on_peer_frame(now);
                Ok(true)
            }
            State::Established => {
                self.clock.on_peer_frame(now);
                // The peer knows our handle.
                self.handshake.acknowledge();
                Ok(true)
            }
        }
    }

    /// Whether bytes of the peer cause a reset: the program has closed, or neither writes nor reads any more.
    const fn is_unwanted(&self) -> bool {
        self.orphan || self.read_shut && self.sender.is_shut()
    }

    /// After the end: the peer has missed the last frame, which is sent again.
    fn repeat_final_frame(&mut self) {
        match self.state {
            State::Closed(End::Finished) => self.receiver.schedule_window(),
            State::Closed(End::Aborted(_)) => self.reset.schedule(),
            _ => {}
        }
    }

    fn first_window(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        let moved = self.sender.on_first_window(limit);
        self.after_window(moved, now)
    }

    fn after_window(
        &mut self,
        moved: Result<WindowEffect, Violation>,
        now: u64,
    ) -> Result<(), Violation> {
        let moved = match moved {
            Ok(moved) => moved,
            Err(violation) => return Err(self.violation(violation, now)),
        };
        if moved.acknowledged {
            self.changes.insert(Changes::ACKNOWLEDGED);
        }
        if moved.acknowledged || moved.opened || moved.end {
            self.clock.progress();
        }
        self.update(now);
        Ok(())
    }

    fn violation(&mut self, violation: Violation, now: u64) -> Violation {
        self.give_up(Reason::Violation, now);
        violation
    }
}
