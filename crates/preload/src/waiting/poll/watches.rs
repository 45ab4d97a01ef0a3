//! The files that the numbers of a call name, and which of their events the library knows without the kernel.

use core::sync::atomic::Ordering;

use libc::POLLIN;

use crate::descriptors::table::Kind;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Socket};
use crate::waiting::epoll::{self, EpollSet};

#[derive(Clone, Copy)]
pub(super) enum Watch {
    /// The kernel answers.
    Kernel,
    /// The kernel answers, until another file takes the place of the pair that a deferred connection is.
    Deferred,
    /// A virtual socket.
    Lane(Lane),
    /// A listener: the kernel's answer, or a pending virtual connection. True where an accept takes what is found.
    Listener(Socket, bool),
    /// An epoll set.
    Set(&'static EpollSet),
}

impl Watch {
    /// The number to poll in the kernel: for a listener that the program has closed, the one under which it is kept.
    #[inline]
    pub(super) fn kernel_number(&self, named: i32) -> i32 {
        match self {
            Self::Listener(socket, false) => kept_number(socket, named),
            _ => named,
        }
    }
}

#[inline(never)]
fn kept_number(socket: &Socket, named: i32) -> i32 {
    let kept = socket.local.orphan.load(Ordering::Acquire);
    if kept > 0 && !socket.is(named) && socket.is(kept - 1) {
        kept - 1
    } else {
        named
    }
}

/// Resolves what a number names.
#[inline]
pub(super) fn resolve(fd: i32, accepts: bool) -> Watch {
    if let Some(set) = epoll::of(fd) {
        return Watch::Set(set);
    }
    let Some(socket) = socket::of(fd) else {
        return Watch::Kernel;
    };
    match socket.word.kind() {
        Kind::Virtual => Lane::of(socket, fd).map_or(Watch::Kernel, Watch::Lane),
        Kind::Listener => {
            let listener = socket.listener();
            listener.inspect(|listener| listener.begin_looking(socket.entry));
            Watch::Listener(socket, accepts)
        }
        Kind::Deferred => Watch::Deferred,
        _ => Watch::Kernel,
    }
}

/// The events of a virtual socket for poll.
fn virtual_events(lane: &Lane, wanted: i16) -> i16 {
    let mask = epoll::readiness(lane).to_ne_bytes();
    // The poll and epoll bits are the same below 0x4000.
    let mask = i16::from_ne_bytes([mask[0], mask[1]]);
    mask & (wanted | libc::POLLHUP | libc::POLLERR)
}

/// The events that the library knows by itself.
pub(super) fn user_events(watch: &Watch, wanted: i16) -> i16 {
    let any = match watch {
        Watch::Kernel | Watch::Deferred => false,
        Watch::Lane(lane) => return virtual_events(lane, wanted),
        Watch::Listener(socket, accepts) => {
            let listener = socket.listener();
            listener.is_some_and(|listener| match accepts {
                true => listener.has_for_accept(),
                false => listener.has_pending(),
            })
        }
        Watch::Set(set) => set.has_events(),
    };
    if any {
        (POLLIN | libc::POLLRDNORM) & wanted
    } else {
        0
    }
}
