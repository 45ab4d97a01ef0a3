//! The program's side: bytes written and read, and the close.

use super::VirtualSocket;
use crate::types::{Changes, End, Fault, Linger, Reason, State};

impl VirtualSocket {
    /// Accepts the connection that the peer requested; Answer is due.
    pub fn accept(&mut self, now: u64) {
        if self.state == State::Deciding {
            self.state = State::Established;
            self.handshake.schedule();
            self.changes.insert(Changes::ESTABLISHED);
            self.update(now);
        }
    }

    /// Refuses it; Reset is due.
    pub fn refuse(&mut self, reason: Reason, now: u64) {
        if self.state == State::Deciding {
            self.give_up(reason, now);
        }
    }

    /// The program has written all bytes before `sequence` (its `tail`). The caller checks that the ring can hold as
    /// much.
    ///
    /// # Errors
    /// [`Fault`] if the sequence decreases, or increases after the program has ended its direction.
    pub fn on_written(&mut self, sequence: u64, now: u64) -> Result<(), Fault> {
        if matches!(self.state, State::Closed(_)) || self.resetting.is_some() {
            return Ok(());
        }
        self.sender.on_written(sequence)?;
        self.update(now);
        Ok(())
    }

    /// The program has read all bytes before `sequence` (its `head`).
    ///
    /// # Errors
    /// [`Fault`] if the sequence decreases, or exceeds [`Self::frontier`].
    pub fn on_read(&mut self, sequence: u64, now: u64) -> Result<(), Fault> {
        if matches!(self.state, State::Closed(_)) {
            return Ok(());
        }
        self.receiver.on_read(sequence)?;
        self.update(now);
        Ok(())
    }

    /// The ring for received bytes has this capacity now. A smaller one is ignored: a window never shrinks.
    pub fn on_capacity(&mut self, capacity: u64, now: u64) {
        self.receiver.on_capacity(capacity);
        self.update(now);
    }

    /// The program writes no more (SHUT_WR). Its bytes must have been reported by [`Self::on_written`] before.
    pub fn shutdown_write(&mut self, now: u64) {
        self.shut();
        self.update(now);
    }

    /// The program reads no more (SHUT_RD). Once it writes no more either, bytes of the peer cause a reset, as with
    /// TCP.
    pub const fn shutdown_read(&mut self) {
        self.read_shut = true;
    }

    /// The program has closed. As with TCP, unread bytes make this a reset, and so do bytes that the peer sends later.
    pub fn close(&mut self, linger: Linger, now: u64) {
        if self.orphan || self.resetting.is_some() || matches!(self.state, State::Closed(_)) {
            return;
        }
        if linger == Linger::Abort || self.receiver.has_unread() {
            return self.reset(Reason::Aborted, now);
        }
        self.orphan = true;
        if self.state == State::Opening {
            // As TCP in SYN-SENT: there is nothing to send, and the answer will find no connection.
            return self.give_up(Reason::Aborted, now);
        }
        if let Linger::Wait(time) = linger {
            self.clock.linger_until(now.saturating_add(time));
        }
        self.shut();
        self.update(now);
    }

    /// The program resets the connection, or ended without closing it. Bytes that the peer's window allows are sent
    /// first: TCP would have sent them long before. The Reset must take the channel of the last of them.
    pub fn reset(&mut self, reason: Reason, now: u64) {
        if self.state != State::Established || self.sender.sendable() == 0 {
            return self.give_up(reason, now);
        }
        if self.resetting.is_none() {
            self.resetting = Some(reason);
            self.sender.cut();
        }
        self.update(now);
    }

    /// Resets the connection at once, because of a [`Fault`] or a limit of the engine.
    pub fn abort(&mut self, reason: Reason, now: u64) {
        self.give_up(reason, now);
    }

    /// Ends the connection without a frame, because the peer has restarted or is unreachable. No frame is sent for it
    /// any more, even if it had ended before.
    pub fn fail(&mut self, reason: Reason, now: u64) {
        self.peer_handle_known = false;
        if !matches!(self.state, State::Closed(_)) {
            self.end(End::Aborted(reason));
            self.update(now);
        }
    }
}
