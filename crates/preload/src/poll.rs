//! `poll` and `select` over descriptors of which some are virtual.
//!
//! Virtual ones are looked at in shared memory; to sleep, their anchors (and for listeners the
//! descriptors on which virtual connections announce themselves) take part in one kernel `poll`.

use libc::{POLLIN, pollfd};
use netchannel_abi::link::waiter as bits;

use crate::lane::Lane;
use crate::socket::{self, Socket};
use crate::table::{self, Kind};
use crate::{cancel, clock, epoll, listener, sys, wait};

/// Whether any of the descriptors is virtual or a listener.
pub fn concerns(set: &[pollfd]) -> bool {
    set.iter().any(|entry| {
        matches!(table::get(entry.fd).kind(), Kind::Virtual | Kind::Listener)
            || epoll::of(entry.fd).is_some_and(epoll::EpollSet::is_active)
    })
}

enum Watch {
    /// The kernel's answer is the answer.
    Kernel,
    /// A virtual socket.
    Lane(Lane),
    /// A listener: the kernel's answer, or a virtual connection that waits.
    Listener(Socket),
    /// An epoll set with virtual members.
    Set(&'static epoll::EpollSet),
}

fn watch(fd: i32) -> Watch {
    if let Some(set) = epoll::of(fd)
        && set.is_active()
    {
        return Watch::Set(set);
    }
    let Some(socket) = socket::of(fd) else {
        return Watch::Kernel;
    };
    match socket.word.kind() {
        Kind::Virtual => Lane::of(socket, fd).map_or(Watch::Kernel, Watch::Lane),
        Kind::Listener => Watch::Listener(socket),
        _ => Watch::Kernel,
    }
}

/// What poll reports of a virtual socket.
fn virtual_events(lane: &Lane, wanted: i16) -> i16 {
    let mask = epoll::readiness(lane).to_ne_bytes();
    // The poll and epoll bits are the same below 0x4000.
    let mask = i16::from_ne_bytes([mask[0], mask[1]]);
    mask & (wanted | libc::POLLHUP | libc::POLLERR)
}

fn user_events(watch: &Watch, wanted: i16) -> i16 {
    match watch {
        Watch::Kernel => 0,
        Watch::Lane(lane) => virtual_events(lane, wanted),
        Watch::Listener(socket) => {
            let pending = socket
                .listener()
                .is_some_and(|listener| listener.has_pending());
            if pending {
                (POLLIN | libc::POLLRDNORM) & wanted
            } else {
                0
            }
        }
        Watch::Set(set) => {
            if set.has_events() {
                (POLLIN | libc::POLLRDNORM) & wanted
            } else {
                0
            }
        }
    }
}

/// `ppoll`; `timeout` in nanoseconds, negative for ever. Fills `revents` and counts them.
///
/// # Errors
/// As `ppoll`.
pub fn poll(set: &mut [pollfd], timeout: i64, mask: *const libc::sigset_t) -> Result<usize, i32> {
    cancel::point();
    let mut watches: Vec<Watch> = set.iter().map(|entry| watch(entry.fd)).collect();
    let start = if timeout > 0 { clock::nanoseconds() } else { 0 };
    let mut kernel: Vec<pollfd> = Vec::new();
    loop {
        let ready = look(set, &watches);
        // The kernel's own part, without waiting.
        prepare(set, &watches, &mut kernel, false);
        if !kernel.is_empty() {
            sys::poll(&mut kernel, 0, core::ptr::null())?;
        }
        let count = merge(set, &watches, &kernel);
        if count > 0 || timeout == 0 {
            return Ok(count);
        }
        debug_assert_eq!(ready, 0);
        if wait::spin(|| any(set, &watches)) {
            continue;
        }
        let left = epoll::remaining(timeout, start);
        if left == 0 {
            return Ok(0);
        }
        arm(set, &watches);
        if any(set, &watches) {
            disarm(&watches);
            continue;
        }
        prepare(set, &watches, &mut kernel, true);
        let began = clock::now();
        let entries = &raw mut kernel;
        let members = &raw mut watches;
        // SAFETY: both lists live until the sleep has ended; when the thread is cancelled in it,
        // nobody looks at them again.
        let undo = || unsafe {
            disarm(&*members);
            core::ptr::drop_in_place(members);
            core::ptr::drop_in_place(entries);
        };
        // SAFETY: as above; only one of the two closures runs.
        let slept = cancel::guarded(undo, || unsafe {
            wait::sleep_in_poll(&mut *entries, left, mask)
        });
        wait::learn(began);
        disarm(&watches);
        serve(&watches, &kernel);
        slept?;
    }
}

fn look(set: &mut [pollfd], watches: &[Watch]) -> usize {
    let mut count = 0;
    for (entry, watch) in set.iter_mut().zip(watches) {
        entry.revents = user_events(watch, entry.events);
        count += usize::from(entry.revents != 0);
    }
    count
}

fn any(set: &[pollfd], watches: &[Watch]) -> bool {
    set.iter()
        .zip(watches)
        .any(|(entry, watch)| user_events(watch, entry.events) != 0)
}

/// The kernel's set: ordinary descriptors and listeners as they are, and, to sleep, whatever wakes
/// the virtual ones. The first entries stand for `set`, in order.
fn prepare(set: &[pollfd], watches: &[Watch], kernel: &mut Vec<pollfd>, sleeping: bool) {
    kernel.clear();
    for (entry, watch) in set.iter().zip(watches) {
        let mut copy = pollfd {
            revents: 0,
            ..*entry
        };
        if let Watch::Lane(_) = watch {
            copy.events = POLLIN;
            if !sleeping {
                copy.fd = -1;
            }
        }
        kernel.push(copy);
    }
    if !sleeping {
        return;
    }
    for watch in watches {
        if let Watch::Listener(socket) = watch
            && let Some(listener) = socket.listener()
        {
            for fd in listener.wake_descriptors() {
                kernel.push(pollfd {
                    fd,
                    events: POLLIN,
                    revents: 0,
                });
            }
        }
    }
}

fn merge(set: &mut [pollfd], watches: &[Watch], kernel: &[pollfd]) -> usize {
    let mut count = 0;
    for ((entry, watch), seen) in set.iter_mut().zip(watches).zip(kernel) {
        match watch {
            Watch::Lane(_) | Watch::Set(_) => {}
            Watch::Kernel | Watch::Listener(_) => entry.revents |= seen.revents,
        }
        count += usize::from(entry.revents != 0);
    }
    count
}

fn arm(set: &[pollfd], watches: &[Watch]) {
    let mut listeners = false;
    for (entry, watch) in set.iter().zip(watches) {
        match watch {
            Watch::Lane(lane) => {
                let out = entry.events & libc::POLLOUT != 0;
                lane.socket
                    .entry
                    .transmit
                    .sleepers
                    .fetch_add(1, core::sync::atomic::Ordering::AcqRel);
                lane.arm(if out {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
            Watch::Listener(_) => listeners = true,
            Watch::Set(set) => set.arm_for_others(),
            Watch::Kernel => {}
        }
    }
    if listeners {
        let _ = listener::listen_for_jobs();
    }
}

fn disarm(watches: &[Watch]) {
    let mut listeners = false;
    for watch in watches {
        match watch {
            Watch::Lane(lane) => {
                lane.socket
                    .entry
                    .transmit
                    .sleepers
                    .fetch_sub(1, core::sync::atomic::Ordering::AcqRel);
                lane.disarm(bits::DATA | bits::SPACE);
            }
            Watch::Set(set) => set.disarm_for_others(),
            Watch::Listener(_) => listeners = true,
            Watch::Kernel => {}
        }
    }
    if listeners {
        listener::loops();
    }
}

/// Takes tokens, doorbells and offers after a sleep.
fn serve(watches: &[Watch], kernel: &[pollfd]) {
    for (watch, seen) in watches.iter().zip(kernel) {
        if let Watch::Lane(lane) = watch
            && seen.revents != 0
            && lane.socket.is(lane.fd)
        {
            lane.take_tokens();
        }
    }
    if kernel
        .iter()
        .skip(watches.len())
        .any(|entry| entry.revents != 0)
    {
        listener::read_channels();
        for watch in watches {
            if let Watch::Listener(socket) = watch
                && let Some(listener) = socket.listener()
            {
                listener.take_offers();
            }
        }
    }
}
