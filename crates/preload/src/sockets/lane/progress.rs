//! The progress of a connect that takes time, as the relay reports it.

use std::sync::OnceLock;

use netchannel_abi::link::side_flags;

use super::Lane;
use crate::sockets::socket::status;

/// The progress of a connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The other side has not answered.
    Pending,
    /// It is connected, and may have ended since.
    Connected,
    /// It failed; the error is pending on the socket.
    Failed,
}

/// Decides on a connect that the relay refuses, and on a connection that nobody has accepted: it fails, or the kernel
/// carries it on. Registered by the module that makes connections.
pub static CARRY_ON: OnceLock<fn(&Lane) -> Progress> = OnceLock::new();

impl Lane {
    /// The progress of the connect. Notes the relay's answer. A connect that the kernel carries on is under way.
    #[cold]
    pub fn progress(&self) -> Progress {
        let progress = self.relay_answer();
        if progress != Progress::Failed || !self.socket.has(status::PENDING) {
            return progress;
        }
        CARRY_ON
            .get()
            .map_or(Progress::Failed, |carry_on| carry_on(self))
    }

    /// The relay's answer.
    pub fn relay_answer(&self) -> Progress {
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
            return Progress::Pending;
        }
        Progress::Failed
    }

    /// The error with which the relay refuses the connect. A relay that ends silently has accepted nothing.
    pub fn refusal_error(&self) -> i32 {
        let refused = self.peer_flags() & side_flags::RESET != 0;
        let refusal = if refused { self.peer_error() } else { 0 };
        match i32::try_from(refusal) {
            Ok(error @ 1..=133) => error,
            _ => libc::ECONNREFUSED,
        }
    }

    /// Whether the connect is still under way: then no bytes can be read or written.
    #[inline]
    pub fn is_connecting(&self) -> bool {
        self.socket.has(status::PENDING) && self.progress() == Progress::Pending
    }
}
