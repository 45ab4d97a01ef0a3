//! `poll`, `select` and `epoll`.

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::array_mut;
use crate::epoll::{self, EpollSet};
use crate::poll::{self as polling, Entries};
use crate::socket::{self, status};
use crate::table::{self, Kind};
use crate::{connection, real, user};

/// How long a call may wait, as the program says it.
#[derive(Clone, Copy)]
pub(super) enum Timeout {
    /// Negative for ever.
    Milliseconds(c_int),
    /// Null for ever; the C library does not write it.
    Constant(*const timespec),
    /// Null for ever; the kernel writes what is left.
    Timespec(*mut timespec),
    /// Null for ever; what is left is written.
    Timeval(*mut timeval),
}

impl Timeout {
    /// In nanoseconds, negative for ever.
    pub(super) unsafe fn limit(self) -> Result<i64, i32> {
        // SAFETY: the program's time, of which any bytes are one.
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

    /// Whether the call says what is left.
    const fn is_told(self) -> bool {
        matches!(self, Self::Timespec(_) | Self::Timeval(_))
    }

    /// Writes what is left of `limit` since `start`. Where that can not be written it is not: then
    /// the call does not fail for it.
    pub(super) unsafe fn tell(self, limit: i64, start: u64) {
        if limit <= 0 || !self.is_told() {
            return;
        }
        let left = epoll::remaining(limit, start);
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

    /// Waits as long as it says, and says what is left.
    unsafe fn poll(self, set: &mut Entries, mask: *const sigset_t) -> Result<usize, i32> {
        // SAFETY: the program's time.
        unsafe {
            let limit = self.limit()?;
            let start = if limit > 0 && self.is_told() {
                crate::clock::nanoseconds()
            } else {
                0
            };
            let polled = polling::poll(set, limit, mask);
            self.tell(limit, start);
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

const SET_BITS: usize = 64;

/// The word of a set of descriptors, which may be longer than `fd_set`; nothing of an absent set.
unsafe fn word(set: *const fd_set, index: usize) -> Result<u64, i32> {
    if set.is_null() {
        return Ok(0);
    }
    // SAFETY: the program's set.
    unsafe { user::read(set.cast::<u64>().wrapping_add(index)) }
}

/// What the three sets of a `select` ask for: to read, to write, what is exceptional.
const ASKED: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM,
    libc::POLLOUT | libc::POLLWRNORM,
    libc::POLLPRI,
];

/// What of an answer counts in the three sets.
const COUNTS: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    libc::POLLPRI,
];

/// The poll set that stands for three select sets. `None` where none of it concerns us, or the
/// kernel shall say what is wrong.
unsafe fn gather(entries: &mut Entries, most: c_int, sets: [*mut fd_set; 3]) -> Option<()> {
    let most = usize::try_from(most).ok()?;
    let mut concerned = false;
    let mut found = Vec::new();
    for index in 0..most.div_ceil(SET_BITS) {
        let mut words = [0; 3];
        for (word_of, set) in words.iter_mut().zip(sets) {
            // SAFETY: the program's sets.
            *word_of = unsafe { word(set, index).ok()? };
        }
        let mut any = words[0] | words[1] | words[2];
        while any != 0 {
            let bit = any.trailing_zeros() as usize;
            any &= any - 1;
            let number = index * SET_BITS + bit;
            if number >= most {
                break;
            }
            let fd = c_int::try_from(number).ok()?;
            concerned |= polling::concerns(fd);
            let asked = words.iter().zip(ASKED);
            let events = asked.map(|(word, asked)| if word >> bit & 1 == 1 { asked } else { 0 });
            found.push(pollfd {
                fd,
                events: events.fold(0, |all, one| all | one),
                revents: 0,
            });
        }
    }
    if !concerned {
        return None;
    }
    entries.make(found.len()).copy_from_slice(&found);
    Some(())
}

/// Writes the outcome back into the three sets and counts as select does.
unsafe fn scatter(entries: &[pollfd], sets: [*mut fd_set; 3]) -> Result<usize, i32> {
    if entries
        .iter()
        .any(|entry| entry.revents & libc::POLLNVAL != 0)
    {
        return Err(libc::EBADF);
    }
    let mut total = 0;
    for ((set, asked), counts) in sets.into_iter().zip(ASKED).zip(COUNTS) {
        if set.is_null() {
            continue;
        }
        let words = set.cast::<u64>();
        // The first word is written in any case, and of the others those that had a bit.
        let (mut at, mut word) = (0, 0);
        for entry in entries.iter().filter(|entry| entry.events & asked != 0) {
            let number = usize::try_from(entry.fd).unwrap_or(0);
            if number / SET_BITS != at {
                // SAFETY: the program's set.
                unsafe { user::write(words.wrapping_add(at), word)? };
                (at, word) = (number / SET_BITS, 0);
            }
            if entry.revents & counts != 0 {
                word |= 1u64 << (number % SET_BITS);
                total += 1;
            }
        }
        // SAFETY: the program's set.
        unsafe { user::write(words.wrapping_add(at), word)? };
    }
    Ok(total)
}

/// `select`. `None` where none of it concerns the library: then the kernel does it, and says what is
/// wrong with it.
pub(super) unsafe fn selected(
    most: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the program's arguments.
    unsafe {
        let mut entries = Entries::new();
        gather(&mut entries, most, sets)?;
        let polled = timeout.poll(&mut entries, mask);
        Some(polled.and_then(|_| scatter(&entries, sets)))
    }
}

/// Copies the program's entries when any of them concerns the library.
#[inline]
unsafe fn copy(entries: &mut Entries, set: *const pollfd, length: nfds_t) -> Option<()> {
    let length = length as usize;
    // SAFETY: the program's entries.
    unsafe {
        if length > polling::MANY && !concerns_many(set, length) {
            return None;
        }
        let list = entries.make(length);
        user::put(list.as_mut_ptr().cast(), set.cast(), size_of_val(list)).ok()?;
        let concerned = list.iter().any(|entry| polling::concerns(entry.fd));
        concerned.then_some(())
    }
}

/// Whether a list that is too long to be copied without need concerns the library.
#[cold]
unsafe fn concerns_many(set: *const pollfd, length: usize) -> bool {
    // SAFETY: the program's entries.
    let number = |index| unsafe { user::read(&raw const (*set.wrapping_add(index)).fd) };
    length <= MOST_ENTRIES && (0..length).any(|index| number(index).is_ok_and(polling::concerns))
}

/// `poll`. `None` where none of it concerns the library: then the kernel does it, and says what is
/// wrong with it.
pub(super) unsafe fn polled(
    set: *mut pollfd,
    length: nfds_t,
    timeout: Timeout,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the program's arguments.
    unsafe {
        let mut entries = Entries::new();
        copy(&mut entries, set, length)?;
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

/// Addresses of the kernel's, which it refuses at once.
const NOT_THE_PROGRAMS: usize = 1 << 47;

/// `epoll_wait` on a set that the library serves.
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
            return count(known.wait(array_mut(events, room), limit, mask));
        }
    }
    wait_for_fault(set, events.addr(), limit, mask)
}

/// A wait for events for which there is no room: they stay, and that there are some is a fault.
#[cold]
fn wait_for_fault(set: c_int, at: usize, limit: i64, mask: *const sigset_t) -> c_int {
    if at >= NOT_THE_PROGRAMS {
        return real::fail(libc::EFAULT);
    }
    let mut entries = Entries::new();
    entries.make(1).fill(pollfd {
        fd: set,
        events: libc::POLLIN,
        revents: 0,
    });
    match polling::poll(&mut entries, limit, mask) {
        Ok(1..) => real::fail(libc::EFAULT),
        told => count(told),
    }
}

/// More descriptors than this no process can have.
const MOST_ENTRIES: usize = 1 << 20;

hook! {
    fn poll(set: *mut pollfd, length: nfds_t, timeout: c_int) -> c_int {
        match polled(set, length, Timeout::Milliseconds(timeout), core::ptr::null()) {
            Some(told) => count(told),
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
        match polled(set, length, Timeout::Constant(timeout), mask) {
            Some(told) => count(told),
            None => real::ppoll(set, length, timeout, mask),
        }
    }

    fn __ppoll_chk(
        set: *mut pollfd, length: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        _room: usize,
    ) -> c_int {
        ppoll(set, length, timeout, mask)
    }

    fn select(
        most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        let limit = Timeout::Timeval(timeout);
        match selected(most, [read, write, except], limit, core::ptr::null()) {
            Some(told) => count(told),
            None => real::select(most, read, write, except, timeout),
        }
    }

    fn __select(
        most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        select(most, read, write, except, timeout)
    }

    fn pselect(
        most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int {
        match selected(most, [read, write, except], Timeout::Constant(timeout), mask) {
            Some(told) => count(told),
            None => real::pselect(most, read, write, except, timeout, mask),
        }
    }

    fn epoll_create(size: c_int) -> c_int {
        let fd = real::epoll_create(size);
        if fd >= 0 {
            connection::forget_unseen(fd);
            epoll::opened(fd);
        }
        fd
    }

    fn epoll_create1(flags: c_int) -> c_int {
        let fd = real::epoll_create1(flags);
        if fd >= 0 {
            connection::forget_unseen(fd);
            epoll::opened(fd);
        }
        fd
    }

    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        match table::get(fd).kind() {
            // To the program it is not open.
            Kind::Internal => return real::fail(libc::EBADF),
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
        match table::get(fd).kind() {
            Kind::Foreign => connection::recognise_listener(fd),
            Kind::Fresh => {
                if let Err(error) = connection::before_kernel_use(fd) {
                    return real::fail(error);
                }
            }
            _ => {}
        }
        let wanted = if operation == libc::EPOLL_CTL_DEL { None } else { user::read(event).ok() };
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
        // An inactive set's events are written by the kernel, which says what is wrong.
        match (epoll::of(set), usize::try_from(most)) {
            (Some(known), Ok(room @ 1..)) if !known.is_active() && !events.is_null() => {
                count(known.wait(array_mut(events, room), limit, mask))
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
                count(known.wait(array_mut(events, room), limit, mask))
            }
            _ => real::epoll_pwait2(set, events, most, timeout, mask),
        }
    }
}
