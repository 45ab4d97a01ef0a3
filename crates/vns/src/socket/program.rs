//! The program's side: what it wrote, read, and closed.

use super::VirtualSocket;
use crate::types::{Changes, End, Fault, Linger, Reason, State};

impl VirtualSocket {
    /// The local side takes the connection that the peer asked for; Answer is due.
    pub fn accept(&mut self, now: u64) {
        if self.state == State::Deciding {
            self.state = State::Established;
            self.handshake.raise();
            self.changes.insert(Changes::ESTABLISHED);
            self.follow(now);
        }
    }

    /// The local side does not take it; Reset is due.
    pub fn refuse(&mut self, reason: Reason, now: u64) {
        if self.state == State::Deciding {
            self.give_up(reason, now);
        }
    }

    /// The program has written all before `sequence` (its `tail`). That the ring can hold as much is for the caller to check.
    ///
    /// # Errors
    /// [`Fault`] if it runs backwards, or on after the program has ended its direction.
    pub fn on_written(&mut self, sequence: u64, now: u64) -> Result<(), Fault> {
        if matches!(self.state, State::Closed(_)) || self.resetting.is_some() {
            return Ok(());
        }
        self.sender.on_written(sequence)?;
        self.follow(now);
        Ok(())
    }

    /// The program has read all before `sequence` (its `head`).
    ///
    /// # Errors
    /// [`Fault`] if it runs backwards, or beyond [`Self::frontier`].
    pub fn on_read(&mut self, sequence: u64, now: u64) -> Result<(), Fault> {
        if matches!(self.state, State::Closed(_)) {
            return Ok(());
        }
        self.receiver.on_read(sequence)?;
        self.follow(now);
        Ok(())
    }

    /// The ring for received bytes is now that large. A smaller one is ignored: a window never shrinks.
    pub fn on_capacity(&mut self, capacity: u64, now: u64) {
        self.receiver.on_capacity(capacity);
        self.follow(now);
    }

    /// The program writes no more (SHUT_WR). What it wrote must have been told by [`Self::on_written`] before.
    pub fn shutdown_write(&mut self, now: u64) {
        self.shut();
        self.follow(now);
    }

    /// The program reads no more (SHUT_RD). Once it writes no more either, what the peer sends makes that a reset, as with TCP.
    pub const fn shutdown_read(&mut self) {
        self.deaf = true;
    }

    /// The program has closed. Unread bytes, as with TCP, make that a reset; so does what the peer sends from now on.
    pub fn close(&mut self, linger: Linger, now: u64) {
        if self.orphan || self.resetting.is_some() || matches!(self.state, State::Closed(_)) {
            return;
        }
        if linger == Linger::Abort || self.receiver.has_unread() {
            return self.reset(Reason::Aborted, now);
        }
        self.orphan = true;
        if self.state == State::Opening {
            // As TCP in SYN-SENT: nothing to send, and the answer will find nobody.
            return self.give_up(Reason::Aborted, now);
        }
        if let Linger::Wait(time) = linger {
            self.clock.linger_until(now.saturating_add(time));
        }
        self.shut();
        self.follow(now);
    }

    /// The program resets it, or ended without a word. What it wrote and the peer's window takes goes first: TCP has sent that long
    /// before. The Reset is to take the channel that the last of it took.
    pub fn reset(&mut self, reason: Reason, now: u64) {
        if self.state != State::Established || self.sender.sendable() == 0 {
            return self.give_up(reason, now);
        }
        if self.resetting.is_none() {
            self.resetting = Some(reason);
            self.sender.cut();
        }
        self.follow(now);
    }

    /// Resets it at once: a [`Fault`], or a limit of the engine.
    pub fn abort(&mut self, reason: Reason, now: u64) {
        self.give_up(reason, now);
    }

    /// Ends it without a word, because there is nobody to say it to: the peer began anew or is unreachable. Nothing is said for it
    /// any more, also if it had ended before.
    pub fn fail(&mut self, reason: Reason, now: u64) {
        self.named = false;
        if !matches!(self.state, State::Closed(_)) {
            self.end(End::Aborted(reason));
            self.follow(now);
        }
    }
}
