//! poll, select and epoll.

use std::mem::zeroed;

use super::{Descriptor, Outcome, check, check_unit};
use crate::far;

/// `EPOLLIN` in the type that `epoll_event` has
pub const IN: u32 = libc::EPOLLIN.cast_unsigned();
/// `EPOLLOUT`
pub const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
/// `EPOLLPRI`
pub const PRI: u32 = libc::EPOLLPRI.cast_unsigned();
/// `EPOLLERR`
pub const ERR: u32 = libc::EPOLLERR.cast_unsigned();
/// `EPOLLHUP`
pub const HUP: u32 = libc::EPOLLHUP.cast_unsigned();
/// `EPOLLRDHUP`
pub const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
/// `EPOLLET`
pub const ET: u32 = libc::EPOLLET.cast_unsigned();
/// `EPOLLONESHOT`
pub const ONESHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
/// `EPOLLEXCLUSIVE`
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();

/// `poll`
pub fn poll(entries: &mut [libc::pollfd], timeout: libc::c_int) -> Outcome<libc::c_int> {
    if let [entry] = entries
        && let Some(far_descriptor) = far::of(entry.fd)
    {
        return far_descriptor.poll(entry, timeout);
    }
    all_near(entries);
    let count = libc::nfds_t::try_from(entries.len()).expect("few descriptors");
    // SAFETY: entries is writable for its length.
    check(unsafe { libc::poll(entries.as_mut_ptr(), count, timeout) })
}

/// `ppoll`
pub fn ppoll(
    entries: &mut [libc::pollfd],
    timeout: Option<libc::timespec>,
    mask: Option<&libc::sigset_t>,
) -> Outcome<libc::c_int> {
    all_near(entries);
    let count = libc::nfds_t::try_from(entries.len()).expect("few descriptors");
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: entries is writable for its length, the others are null or valid.
    check(unsafe { libc::ppoll(entries.as_mut_ptr(), count, timeout, mask) })
}

fn all_near(entries: &[libc::pollfd]) {
    for entry in entries {
        far::only_near(entry.fd, "poll of several, one of them far");
    }
}

/// A set for `select`.
#[derive(Clone, Copy)]
pub struct Set(libc::fd_set);

impl Default for Set {
    fn default() -> Self {
        // SAFETY: an fd_set of zeroes is the empty set.
        Self(unsafe { zeroed() })
    }
}

impl Set {
    /// A set of these descriptors, all below `FD_SETSIZE`.
    #[must_use]
    pub fn of(descriptors: &[Descriptor]) -> Self {
        let mut set = Self::default();
        for descriptor in descriptors {
            far::only_near(*descriptor, "select");
            // SAFETY: cases keep to numbers below FD_SETSIZE.
            unsafe { libc::FD_SET(*descriptor, &raw mut set.0) };
        }
        set
    }

    /// Whether the set holds a descriptor.
    #[must_use]
    pub fn has(&self, descriptor: Descriptor) -> bool {
        // SAFETY: cases keep to numbers below FD_SETSIZE.
        unsafe { libc::FD_ISSET(descriptor, &raw const self.0) }
    }
}

/// `select` up to and including `highest`, for at most `milliseconds`
pub fn select(
    highest: Descriptor,
    read: Option<&mut Set>,
    write: Option<&mut Set>,
    except: Option<&mut Set>,
    milliseconds: i64,
) -> Outcome<libc::c_int> {
    let pointer = |set: Option<&mut Set>| set.map_or(std::ptr::null_mut(), |set| &raw mut set.0);
    let mut timeout = libc::timeval {
        tv_sec: milliseconds / 1000,
        tv_usec: (milliseconds % 1000) * 1000,
    };
    // SAFETY: sets are null or valid, the time-out is valid.
    check(unsafe {
        libc::select(
            highest + 1,
            pointer(read),
            pointer(write),
            pointer(except),
            &raw mut timeout,
        )
    })
}

/// `pselect` for reading only
pub fn pselect(
    highest: Descriptor,
    read: &mut Set,
    timeout: Option<libc::timespec>,
    mask: Option<&libc::sigset_t>,
) -> Outcome<libc::c_int> {
    let none = std::ptr::null_mut();
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the set is valid, the others are null or valid.
    check(unsafe { libc::pselect(highest + 1, &raw mut read.0, none, none, timeout, mask) })
}

/// `epoll_create1`
pub fn epoll_create() -> Outcome<Descriptor> {
    // SAFETY: takes an integer.
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// `epoll_ctl`
pub fn epoll_control(
    set: Descriptor,
    operation: libc::c_int,
    descriptor: Descriptor,
    events: u32,
    data: u64,
) -> Outcome<()> {
    far::only_near(descriptor, "epoll");
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: event is valid.
    check_unit(unsafe { libc::epoll_ctl(set, operation, descriptor, &raw mut event) })
}

/// An event that `epoll_wait` returned: the reported bits and the data of one member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The data given when the member was added.
    pub data: u64,
    /// The reported bits.
    pub events: u32,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{:#x}", self.data, self.events)
    }
}

pub(super) fn reported_events(events: &[libc::epoll_event], count: libc::c_int) -> Vec<Event> {
    let count = usize::try_from(count).unwrap_or_default();
    let one = |event: &libc::epoll_event| Event {
        data: event.u64,
        events: event.events,
    };
    events.iter().take(count).map(one).collect()
}

/// `epoll_wait` for at most `room` events
pub fn epoll_wait(set: Descriptor, room: usize, timeout: libc::c_int) -> Outcome<Vec<Event>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let length = libc::c_int::try_from(room).expect("few events");
    // SAFETY: events is writable for its length.
    let count = check(unsafe { libc::epoll_wait(set, events.as_mut_ptr(), length, timeout) })?;
    Ok(reported_events(&events, count))
}

/// `epoll_pwait`
pub fn epoll_pwait(
    set: Descriptor,
    room: usize,
    timeout: libc::c_int,
    mask: &libc::sigset_t,
) -> Outcome<Vec<Event>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let length = libc::c_int::try_from(room).expect("few events");
    // SAFETY: events is writable for its length, the mask is valid.
    let count =
        check(unsafe { libc::epoll_pwait(set, events.as_mut_ptr(), length, timeout, mask) })?;
    Ok(reported_events(&events, count))
}

/// `eventfd`
pub fn eventfd(initial: libc::c_uint, flags: libc::c_int) -> Outcome<Descriptor> {
    // SAFETY: takes integers.
    check(unsafe { libc::eventfd(initial, flags) })
}
