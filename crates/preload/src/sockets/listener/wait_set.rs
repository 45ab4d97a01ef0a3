//! What a thread sleeps on that waits for connections: the descriptors for a poll, and the epoll set in which a blocking
//! accept sleeps whose listener several processes have. As over TCP a connection wakes one of them: each process has a
//! set of its own, which watches the listener's descriptors exclusively. A poll would wake all of them.
//!
//! ```text
//!   TCP listener, daemon's channel, relatives' queue, clients' queue --exclusively--> set of process 1
//!                                                                    --exclusively--> set of process 2 ...
//! ```
//!
//! The kernel wakes the first of those that sleep. Who was woken goes to the end before it sleeps again, so that all
//! have their turns, as over TCP.

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLEXCLUSIVE, EPOLLIN, c_int};

use core::sync::atomic::{AtomicU32, Ordering};

use super::Listener;
use super::links::REGISTRY;
use crate::descriptors::channel::Channel;
use crate::descriptors::limits;
use crate::ground::{real, sys};
use crate::sockets::link::LinkEnd;

/// Descriptors that are watched exclusively: the TCP listener, the daemon's channel, the relatives' queue and the
/// clients' queue.
const EXCLUSIVE: usize = 4;
/// Most events that one sleep reports.
const MOST: usize = EXCLUSIVE + 2;

/// Places of a set's descriptors, by which a sleep says what has ended it.
pub mod place {
    /// The TCP listener.
    pub const KERNEL: usize = 0;
    /// The daemon's channel.
    pub const CHANNEL: usize = 1;
    /// The wake-ups by threads of this process.
    pub const WAKE_UPS: usize = super::EXCLUSIVE;
    /// Signals that end the call.
    pub const SIGNALS: usize = WAKE_UPS + 1;
}

/// What a set watches. It is made anew where this changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Members {
    exclusive: [c_int; EXCLUSIVE],
    wake_ups: c_int,
    /// Addresses of what the numbers belong to, none of which is ever freed: a number may be another file's by now.
    identity: [usize; 2],
    /// The signals that end the call.
    signals: u64,
}

/// The set of one process for one listener. Never freed: another thread may sleep in it.
pub struct WaitSet {
    members: Members,
    set: Channel,
    /// Readable while a signal is pending that ends the call; none where there are no such signals.
    signals: Channel,
    /// The places that have woken this process since it last went to their end, a bit each.
    woken_by: AtomicU32,
}

impl WaitSet {
    fn make(members: Members, signals: Option<c_int>) -> Option<&'static Self> {
        let signals = signals.unwrap_or(-1);
        let Ok(set) = limits::for_library(sys::epoll_create) else {
            sys::close(signals);
            return None;
        };
        let made: &'static Self = Box::leak(Box::new(Self {
            members,
            set: Channel::new(set),
            signals: Channel::new(signals),
            woken_by: AtomicU32::new(0),
        }));
        let number = made.set.number();
        let exclusive = members.exclusive.iter().enumerate();
        let own = [
            (place::WAKE_UPS, members.wake_ups),
            (place::SIGNALS, made.signals.number()),
        ];
        let complete = exclusive
            .map(|(place, fd)| (place, *fd, EPOLLIN | EPOLLEXCLUSIVE))
            .chain(own.map(|(place, fd)| (place, fd, EPOLLIN)))
            .filter(|(_, fd, _)| *fd >= 0)
            .all(|(place, fd, events)| add(number, place, fd, events).is_ok());
        if !complete {
            made.end();
            return None;
        }
        Some(made)
    }

    /// Moves this process behind the others that wait for what has woken it.
    fn yield_turn(&self, set: c_int) {
        let woken_by = self.woken_by.load(Ordering::Relaxed);
        if woken_by == 0 {
            return;
        }
        self.woken_by.store(0, Ordering::Relaxed);
        for (place, fd) in self.members.exclusive.iter().enumerate() {
            if woken_by & 1 << place != 0 {
                let _ = sys::epoll_control(set, EPOLL_CTL_DEL, *fd, 0, 0);
                let _ = add(set, place, *fd, EPOLLIN | EPOLLEXCLUSIVE);
            }
        }
    }

    /// Sleeps until something comes. Returns a bit for each [`place`] that has brought it.
    ///
    /// # Errors
    /// `EINTR` after a handler has run or the process was stopped; `EBADF` where the listener was closed meanwhile.
    pub fn sleep(&self) -> Result<u32, c_int> {
        let slept = self.set.with(|set| {
            self.yield_turn(set);
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
            let most = c_int::try_from(MOST).unwrap_or(1);
            // SAFETY: the events are a local with room for that many.
            let got = unsafe { real::epoll_wait(set, events.as_mut_ptr(), most, -1) };
            let got = usize::try_from(got).map_err(|_| real::errno())?;
            let came = events.iter().take(got);
            let places = came.fold(0, |all, event| all | 1 << event.u64);
            let exclusive = places & ((1 << EXCLUSIVE) - 1);
            self.woken_by.fetch_or(exclusive, Ordering::Relaxed);
            Ok(places)
        });
        slept.unwrap_or(Err(libc::EBADF))
    }

    /// Called when a thread was cancelled in [`Self::sleep`].
    pub fn abandon(&self) {
        self.set.leave();
    }

    fn end(&self) {
        self.set.end();
        self.signals.end();
    }
}

fn add(set: c_int, place: usize, fd: c_int, events: c_int) -> Result<(), c_int> {
    let data = place as u64;
    sys::epoll_control(set, EPOLL_CTL_ADD, fd, events.cast_unsigned(), data)
}

impl Listener {
    /// Descriptors to sleep on besides the TCP listener itself.
    pub fn wake_descriptors(&self) -> Vec<i32> {
        let mut list = vec![self.channel()];
        list.extend(self.queues());
        if let Some(registry) = REGISTRY.lock() {
            list.extend(registry.open_servers().map(LinkEnd::channel));
        }
        list
    }

    /// The set in which an accept on `fd` sleeps that these signals end; `descriptor` makes a descriptor that is
    /// readable while one of them is pending. `None` where there is no number for it.
    pub fn wait_set(
        &self,
        fd: c_int,
        signals: u64,
        descriptor: impl FnOnce() -> Option<c_int>,
    ) -> Option<&'static WaitSet> {
        let [shared, queued] = self.queues();
        let offers = self.offers()?;
        let queues = self.shared_queues();
        let members = Members {
            exclusive: [fd, offers.number(), shared, queued],
            wake_ups: self.wake_ups.fd(),
            identity: [
                core::ptr::from_ref(offers).addr(),
                queues.map_or(0, |queues| core::ptr::from_ref(queues).addr()),
            ],
            signals,
        };
        // SAFETY: set below, from leaked boxes. Acquire: pairs with the release there.
        let known = unsafe { self.wait_set.load(Ordering::Acquire).as_ref() };
        if let Some(known) = known.filter(|known| known.members == members) {
            return Some(known);
        }
        let readable = match signals {
            0 => None,
            _ => Some(descriptor()?),
        };
        let made = WaitSet::make(members, readable)?;
        let place = core::ptr::from_ref(made).cast_mut();
        // Release: pairs with the acquire above. Acquire: who takes a set out ends it.
        let former = self.wait_set.swap(place, Ordering::AcqRel);
        // SAFETY: as above.
        unsafe { former.as_ref() }.inspect(|former| former.end());
        Some(made)
    }

    /// Closes this process's set: it closes the listener.
    pub(super) fn end_wait_set(&self) {
        let former = self.wait_set.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: as in `wait_set`.
        unsafe { former.as_ref() }.inspect(|former| former.end());
    }

    /// In a forked child: the set is the parent's.
    pub(super) fn end_wait_set_in_child(&self) {
        let former = self.wait_set.swap(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: as in `wait_set`.
        if let Some(former) = unsafe { former.as_ref() } {
            former.set.end_in_child();
            former.signals.end_in_child();
        }
    }

    pub(super) fn relocate_wait_set(&self, from: c_int, to: c_int) {
        // SAFETY: as in `wait_set`.
        if let Some(set) = unsafe { self.wait_set.load(Ordering::Acquire).as_ref() } {
            set.set.relocate(from, to);
            set.signals.relocate(from, to);
        }
    }
}
