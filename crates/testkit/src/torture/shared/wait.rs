//! How an actor waits for a socket that it shares with others.

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor};

use crate::step::{wait_in_poll, wait_in_set};

/// A way to wait, with the actor's own set where it has one.
pub enum Wait {
    /// In the call that sends or receives.
    InCall,
    /// In `poll`, for an event.
    Poll(Descriptor, u32),
    /// In a set.
    Set(Descriptor),
}

impl Wait {
    /// A drawn way to wait for `event` (`IN` or `OUT`).
    pub fn draw(socket: Descriptor, event: u32, random: &mut Random) -> Self {
        let events = match random.below(5) {
            0 | 1 => return Self::InCall,
            2 => return Self::Poll(socket, event),
            3 => event,
            _ => event | sys::ET,
        };
        let set = sys::epoll_create().expect("epoll_create");
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, events, 0).expect("epoll_ctl");
        Self::Set(set)
    }

    /// Whether the actor waits by itself.
    pub fn is_own(&self) -> bool {
        !matches!(self, Self::InCall)
    }

    /// The flags of a call that does not wait.
    pub fn flags(&self) -> libc::c_int {
        if self.is_own() { libc::MSG_DONTWAIT } else { 0 }
    }

    /// Waits, without end.
    pub fn wait(&self) {
        match *self {
            Self::InCall => {}
            Self::Poll(fd, event) => wait_in_poll(fd, event),
            Self::Set(set) => wait_in_set(set),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Self::Set(set) = self {
            sys::close(*set).expect("close");
        }
    }
}
