//! What the peer says. Nothing it says is believed, and nothing makes this panic.

use super::VirtualSocket;
use crate::channel::Notice;
use crate::claims::Claim;
use crate::receiver::Accepted;
use crate::sender::Moved;
use crate::types::{Changes, End, Placement, Reason, State, Violation, Window};

impl VirtualSocket {
    /// Open came again for this connection: the same answer is given again.
    ///
    /// # Errors
    /// A window that cannot be. The connection is reset.
    pub fn on_open_again(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        match self.state {
            State::Established if self.handshake != Notice::Settled => self.handshake.raise(),
            State::Closed(End::Aborted(_)) => self.reset.raise(),
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
    /// A window that cannot be, or an answer to what was not asked. The connection is reset.
    pub fn on_answer(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        self.named = true;
        if let State::Closed(end) = self.state {
            // Given up while it was on its way: the peer learns it now.
            if matches!(end, End::Aborted(_)) {
                self.reset.raise();
            }
            return Ok(());
        }
        if self.state == State::Deciding || !self.handshake.was_sent() {
            return Err(self.violation(Violation::NotOpen, now));
        }
        self.clock.heard(now);
        if self.state == State::Opening {
            self.state = State::Established;
            self.handshake.settle();
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
        if !self.listens(now)? {
            // A peer that says something again has not heard how it ended.
            self.remind();
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
        self.follow(now);
        Ok(placement)
    }

    /// `length` bytes from `sequence`, all or the next part of a claim, are written. The frontier may move.
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
        self.follow(now);
    }

    /// The claim is written, or given up as far as it was not (its channel was lost).
    pub fn finish(&mut self, claim: Claim, now: u64) {
        self.receiver.finish(claim);
        self.follow(now);
    }

    /// The peer acknowledges and opens its window.
    ///
    /// # Errors
    /// An acknowledgement or a window that cannot be. The connection is reset.
    pub fn on_window(&mut self, window: Window, now: u64) -> Result<(), Violation> {
        if !self.listens(now)? {
            if window.ask {
                self.remind();
            }
            return Ok(());
        }
        if window.ask {
            self.receiver.say_window();
        }
        let moved = self.sender.on_window(&window);
        self.after_window(moved, now)
    }

    /// The peer's direction ends at `sequence`.
    ///
    /// # Errors
    /// An end beyond the window, or that is not where it can be. The connection is reset.
    pub fn on_fin(&mut self, sequence: u64, now: u64) -> Result<(), Violation> {
        if !self.listens(now)? {
            self.remind();
            return Ok(());
        }
        let before = self.receiver.is_ended();
        if let Err(violation) = self.receiver.on_fin(sequence) {
            return Err(self.violation(violation, now));
        }
        if !before && self.receiver.is_ended() {
            self.changes.insert(Changes::AT_END);
        }
        self.follow(now);
        Ok(())
    }

    /// The peer has reset or refused it. Bytes that the program has not read are void.
    pub fn on_reset(&mut self, reason: Reason, now: u64) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        // All that is missing is that the peer has heard of our end, and it has forgotten the connection: it had.
        let forgotten = reason == Reason::NoSocket
            && self.receiver.is_ended()
            && self.sender.all_acknowledged();
        self.end(if forgotten {
            End::Finished
        } else {
            End::Reset(reason)
        });
        self.follow(now);
    }

    /// Any frame but Open and Reset: whether there is still somebody to hear it.
    fn listens(&mut self, now: u64) -> Result<bool, Violation> {
        match self.state {
            State::Closed(_) => Ok(false),
            State::Deciding => Err(self.violation(Violation::NotOpen, now)),
            State::Opening => {
                self.clock.heard(now);
                Ok(true)
            }
            State::Established => {
                self.clock.heard(now);
                // The peer knows our handle.
                self.handshake.settle();
                Ok(true)
            }
        }
    }

    /// Whether what the peer sends meets a reset: the program has closed, or neither sends nor reads any more.
    const fn is_unwanted(&self) -> bool {
        self.orphan || self.deaf && self.sender.is_shut()
    }

    /// After the end: the peer has missed what it was told last.
    fn remind(&mut self) {
        match self.state {
            State::Closed(End::Finished) => self.receiver.say_window(),
            State::Closed(End::Aborted(_)) => self.reset.raise(),
            _ => {}
        }
    }

    fn first_window(&mut self, limit: u64, now: u64) -> Result<(), Violation> {
        let moved = self.sender.on_first_window(limit);
        self.after_window(moved, now)
    }

    fn after_window(&mut self, moved: Result<Moved, Violation>, now: u64) -> Result<(), Violation> {
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
        self.follow(now);
        Ok(())
    }

    fn violation(&mut self, violation: Violation, now: u64) -> Violation {
        self.give_up(Reason::Violation, now);
        violation
    }
}
