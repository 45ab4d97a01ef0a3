//! How far a connect has come that takes time: what the relay has said.

use std::sync::OnceLock;

use netchannel_abi::link::side_flags;

use super::Lane;
use crate::sockets::socket::status;

/// How far a connect has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The other side has not answered.
    Waits,
    /// It is connected, and may have ended since.
    Connected,
    /// It failed; the error is the socket's until it is told.
    Failed,
}

/// What becomes of a connect that the relay refuses: it fails, or the kernel carries it on. Who makes connections registers it.
pub static CARRY_ON: OnceLock<fn(&Lane) -> Progress> = OnceLock::new();

impl Lane {
    /// How far the connect has come. Notes what the relay says. Where the kernel is to carry it on, it is under way.
    #[cold]
    pub fn progress(&self) -> Progress {
        let progress = self.decided();
        if progress != Progress::Failed || !self.socket.has(status::PENDING) {
            return progress;
        }
        CARRY_ON
            .get()
            .map_or(Progress::Failed, |carry_on| carry_on(self))
    }

    /// What the relay has said.
    pub fn decided(&self) -> Progress {
        let socket = self.socket;
        if !socket.has(status::PENDING) {
            return if socket.has(status::REFUSED) {
                Progress::Failed
            } else {
                Progress::Connected
            };
        }
        let flags = self.peer_flags();
        if flags & side_flags::ESTABLISHED != 0 {
            socket.unmark(status::PENDING);
            return Progress::Connected;
        }
        if flags & side_flags::RESET == 0 && !socket.has(status::PEER_GONE | status::FAULT) {
            return Progress::Waits;
        }
        Progress::Failed
    }

    /// Why the relay refuses it. One that ends without a word has taken nothing up.
    pub fn refusal(&self) -> i32 {
        let refused = self.peer_flags() & side_flags::RESET != 0;
        let said = if refused { self.peer_error() } else { 0 };
        match i32::try_from(said) {
            Ok(error @ 1..=133) => error,
            _ => libc::ECONNREFUSED,
        }
    }

    /// Whether the connect is still under way: then nothing can be read or written.
    #[inline]
    pub fn is_connecting(&self) -> bool {
        self.socket.has(status::PENDING) && self.progress() == Progress::Waits
    }
}
