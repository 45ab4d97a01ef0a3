//! `poll` and `epoll`.

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::array_mut;
use crate::connections::connection;
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{limits, user};
use crate::ground::{clock, real};
use crate::sockets::socket::{self, status};
use crate::waiting::epoll::{self, EpollSet};
use crate::waiting::housekeeping;
use crate::waiting::poll::{self as polling, Entries, EventFilter};

/// The time-out of a call, as the program gives it.
#[derive(Clone, Copy)]
pub(super) enum Timeout {
    /// Negative is forever.
    Milliseconds(c_int),
    /// Null is forever; the C library does not write to it.
    Constant(*const timespec),
    /// Null is forever; the kernel writes the remaining time.
    Timespec(*mut timespec),
    /// Null is forever; the remaining time is written.
    Timeval(*mut timeval),
}

impl Timeout {
    /// In nanoseconds, negative is forever.
    pub(super) unsafe fn limit(self) -> Result<i64, i32> {
        // SAFETY: the program's time; any bytes are valid.
        let (seconds, nanoseconds) = unsafe {
            match self {
                Self::Milliseconds(time) if time < 0 => return Ok(-1),
                Self::Milliseconds(time) => return Ok(i64::from(time) * 1_000_000),
                Self::Timeval(time) if time.is_null() => return Ok(-1),
                Self::Timeval(time) => {
                    let time = user::read(time)?;
                    let more = time.tv_usec / 1_000_000;
                    (
                        time.tv_sec.saturating_add(more),
                        time.tv_usec % 1_000_000 * 1000,
                    )
                }
                Self::Timespec(time) if time.is_null() => return Ok(-1),
                Self::Constant(time) if time.is_null() => return Ok(-1),
                Self::Timespec(time) => {
                    let time = user::read(time)?;
                    (time.tv_sec, time.tv_nsec)
                }
                Self::Constant(time) => {
                    let time = user::read(time)?;
                    (time.tv_sec, time.tv_nsec)
                }
            }
        };
        if seconds < 0 || !(0..1_000_000_000).contains(&nanoseconds) {
            return Err(libc::EINVAL);
        }
        Ok(seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds))
    }

    /// Whether the call returns the remaining time.
    const fn returns_rest(self) -> bool {
        matches!(self, Self::Timespec(_) | Self::Timeval(_))
    }

    /// Writes the rest of `limit` since `start`. A failure to write it is ignored.
    pub(super) unsafe fn write_rest(self, limit: i64, start: u64) {
        if limit <= 0 || !self.returns_rest() {
            return;
        }
        let left = clock::remaining(limit, start);
        let (tv_sec, tv_nsec) = (left / 1_000_000_000, left % 1_000_000_000);
        let tv_usec = tv_nsec / 1000;
        // SAFETY: the program's time.
        let _ = unsafe {
            match self {
                Self::Milliseconds(_) | Self::Constant(_) => Ok(()),
                Self::Timespec(time) => user::write(time, timespec { tv_sec, tv_nsec }),
                Self::Timeval(time) => user::write(time, timeval { tv_sec, tv_usec }),
            }
        };
    }

    /// Polls with this time-out, and writes the remaining time.
    pub(super) unsafe fn poll(
        self,
        set: &mut Entries,
        mask: *const sigset_t,
    ) -> Result<usize, i32> {
        // SAFETY: the program's time.
        unsafe {
            let limit = self.limit()?;
            let start = if limit > 0 && self.returns_rest() {
                crate::ground::clock::nanoseconds()
            } else {
                0
            };
            let polled = housekeeping::in_slices(limit, |limit| polling::poll(set, limit, mask));
            self.write_rest(limit, start);
            polled
        }
    }
}

pub(super) fn count(result: Result<usize, i32>) -> c_int {
    match result {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(error) => real::fail(error),
    }
}

fn outcome(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => real::fail(error),
    }
}

/// Copies the program's entries if any of them concerns the library.
#[inline]
unsafe fn copy_entries(entries: &mut Entries, set: *const pollfd, length: nfds_t) -> Option<()> {
    let length = length as usize;
    // SAFETY: the program's entries.
    unsafe {
        if length > polling::MANY && !concerns_many(set, length) {
            return None;
        }
        let list = entries.make(length);
        user::copy_bytes(list.as_mut_ptr().cast(), set.cast(), size_of_val(list)).ok()?;
        let concerned = list
            .iter()
            .filter(|entry| concerns_library(entry.fd))
            .count()
            > 0;
        if list
            .iter()
            .any(|entry| entry.events & libc::POLLWRBAND != 0)
        {
            materialise_all(list);
        }
        concerned.then_some(())
    }
}

/// Whether the library has to look at a descriptor. A socket on which a relative listens is a listener here, too, from
/// now on: the kernel knows nothing of its virtual connections.
#[inline]
pub(super) fn concerns_library(fd: c_int) -> bool {
    polling::concerns_library(fd)
        || table::get(fd).kind() == Kind::Kernel
            && socket::of(fd).is_some_and(|socket| {
                socket.has(status::SHARED) && !socket.has(status::KERNEL_CONNECTED)
            })
            && connection::recognise_listener_of_relative(fd)
}

/// The file of a fresh or deferred socket shows `POLLWRBAND`, which TCP never does.
#[cold]
fn materialise_all(list: &[pollfd]) {
    for entry in list {
        let is_unconnected = matches!(table::get(entry.fd).kind(), Kind::Fresh | Kind::Deferred);
        if is_unconnected && entry.events & libc::POLLWRBAND != 0 {
            let _ = connection::before_kernel_use(entry.fd);
        }
    }
}

/// Whether a list that is too long for a needless copy concerns the library.
#[cold]
unsafe fn concerns_many(set: *const pollfd, length: usize) -> bool {
    // SAFETY: the program's entries.
    let number = |index| unsafe { user::read(&raw const (*set.wrapping_add(index)).fd) };
    length <= MOST_ENTRIES && (0..length).any(|index| number(index).is_ok_and(concerns_library))
}

/// `poll`. `None` where no entry concerns the library: then the kernel does it, and finds errors.
pub(super) unsafe fn try_poll(
    set: *mut pollfd,
    length: nfds_t,
    timeout: Timeout,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the program's arguments.
    unsafe {
        let mut entries = Entries::new(EventFilter::Poll);
        copy_entries(&mut entries, set, length).filter(|()| entries.len() <= limits::soft())?;
        let polled = timeout.poll(&mut entries, mask);
        for (index, entry) in entries.iter().enumerate() {
            let place = &raw mut (*set.wrapping_add(index)).revents;
            if let Err(error) = user::write(place, entry.revents) {
                return Some(Err(error));
            }
        }
        Some(polled)
    }
}

/// `epoll_wait` on a set with members of the library.
#[inline]
unsafe fn wait_active(
    set: c_int,
    known: &'static EpollSet,
    events: *mut epoll_event,
    room: usize,
    limit: i64,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's room for events.
    unsafe {
        if user::probe_write(events.cast()).is_ok() {
            let events = array_mut(events, room);
            return count(housekeeping::in_slices(limit, |limit| {
                known.wait(events, limit, mask)
            }));
        }
    }
    wait_for_fault(set, events.addr(), limit, mask)
}

/// A wait whose array can not be written: events stay, and if there are any the call is a fault.
#[cold]
fn wait_for_fault(set: c_int, at: usize, limit: i64, mask: *const sigset_t) -> c_int {
    if at >= user::END {
        return real::fail(libc::EFAULT);
    }
    let mut entries = Entries::new(EventFilter::Poll);
    entries.make(1).fill(pollfd {
        fd: set,
        events: libc::POLLIN,
        revents: 0,
    });
    match polling::poll(&mut entries, limit, mask) {
        Ok(1..) => real::fail(libc::EFAULT),
        result => count(result),
    }
}

/// Reads the event of an operation that has one.
unsafe fn read_event(
    operation: c_int,
    event: *const epoll_event,
) -> Result<Option<epoll_event>, i32> {
    if operation == libc::EPOLL_CTL_DEL {
        return Ok(None);
    }
    // SAFETY: the program's event.
    unsafe { user::read(event).map(Some) }
}

/// Most descriptors of any process.
const MOST_ENTRIES: usize = 1 << 20;

hook! {
    fn poll(set: *mut pollfd, length: nfds_t, timeout: c_int) -> c_int {
        match try_poll(set, length, Timeout::Milliseconds(timeout), core::ptr::null()) {
            Some(result) => count(result),
            None => real::poll(set, length, timeout),
        }
    }

    fn __poll(set: *mut pollfd, length: nfds_t, timeout: c_int) -> c_int {
        poll(set, length, timeout)
    }

    fn __poll_chk(set: *mut pollfd, length: nfds_t, timeout: c_int, _room: usize) -> c_int {
        poll(set, length, timeout)
    }

    fn ppoll(
        set: *mut pollfd, length: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        match try_poll(set, length, Timeout::Constant(timeout), mask) {
            Some(result) => count(result),
            None => real::ppoll(set, length, timeout, mask),
        }
    }

    fn __ppoll_chk(
        set: *mut pollfd, length: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        _room: usize,
    ) -> c_int {
        ppoll(set, length, timeout, mask)
    }

    fn epoll_create(size: c_int) -> c_int {
        let fd = real::epoll_create(size);
        if fd >= 0 {
            connection::forget_closed(fd);
            epoll::opened(fd);
        }
        fd
    }

    fn epoll_create1(flags: c_int) -> c_int {
        let fd = real::epoll_create1(flags);
        if fd >= 0 {
            connection::forget_closed(fd);
            epoll::opened(fd);
        }
        fd
    }

    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        match table::get(fd).kind() {
            // For the program it is not open. The kernel reads the event first.
            Kind::Internal => {
                let event = read_event(operation, event).map(|_| libc::EBADF);
                return real::fail(event.unwrap_or_else(|fault| fault));
            }
            Kind::Foreign if operation != libc::EPOLL_CTL_ADD => {
                return real::epoll_ctl(set, operation, fd, event);
            }
            Kind::Kernel
                if socket::of(fd).is_some_and(|socket| socket.has(status::KERNEL_CONNECTED)) =>
            {
                return real::epoll_ctl(set, operation, fd, event);
            }
            _ => {}
        }
        let Some(known) = epoll::of(set) else {
            return real::epoll_ctl(set, operation, fd, event);
        };
        let wanted = match read_event(operation, event) {
            Ok(wanted) => wanted,
            Err(error) => return real::fail(error),
        };
        match table::get(fd).kind() {
            Kind::Foreign => connection::recognise_listener(fd),
            Kind::Kernel => {
                connection::recognise_listener_of_relative(fd);
            }
            Kind::Fresh => {
                if let Some(socket) = socket::of(fd)
                    && let Some(done) = known.control_fresh(operation, fd, &socket, wanted)
                {
                    return outcome(done);
                }
                if let Err(error) = connection::before_kernel_use(fd) {
                    return real::fail(error);
                }
            }
            _ => {}
        }
        if let Some(member) = epoll::of(fd) {
            return outcome(known.control_nested(operation, fd, member, wanted));
        }
        let Some(socket) = socket::of(fd) else {
            return real::epoll_ctl(set, operation, fd, event);
        };
        match socket.word.kind() {
            Kind::Virtual => outcome(known.control(operation, fd, &socket, wanted)),
            _ => outcome(known.control_kernel(operation, fd, &socket, wanted)),
        }
    }

    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
        if epoll::of(set).is_none() {
            return real::epoll_wait(set, events, most, timeout);
        }
        epoll_pwait(set, events, most, timeout, core::ptr::null())
    }

    fn epoll_pwait(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t,
    ) -> c_int {
        let limit = if timeout < 0 { -1 } else { i64::from(timeout) * 1_000_000 };
        // The kernel writes the events of an inactive set, and finds errors.
        match (epoll::of(set), usize::try_from(most)) {
            (Some(known), Ok(room @ 1..)) if !known.is_active() && !events.is_null() => {
                let events = array_mut(events, room);
                count(housekeeping::in_slices(limit, |limit| known.wait(events, limit, mask)))
            }
            (Some(known), Ok(room @ 1..)) if known.is_active() => {
                wait_active(set, known, events, room, limit, mask)
            }
            _ => real::epoll_pwait(set, events, most, timeout, mask),
        }
    }

    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        match (epoll::of(set), usize::try_from(most), Timeout::Constant(timeout).limit()) {
            (Some(known), Ok(room @ 1..), Ok(limit)) if known.is_active() => {
                wait_active(set, known, events, room, limit, mask)
            }
            (Some(known), Ok(room @ 1..), Ok(limit)) if !events.is_null() => {
                let events = array_mut(events, room);
                count(housekeeping::in_slices(limit, |limit| known.wait(events, limit, mask)))
            }
            _ => real::epoll_pwait2(set, events, most, timeout, mask),
        }
    }
}
