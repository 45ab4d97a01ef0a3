//! `poll`, `select` and `epoll`.

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::array_mut;
use crate::socket::{self, status};
use crate::table::{self, Kind};
use crate::{connection, epoll, poll as polling, real, user};

/// A timeout as nanoseconds, negative for none. `None` for an invalid one.
unsafe fn nanoseconds(timeout: *const timespec) -> Option<i64> {
    if timeout.is_null() {
        return Some(-1);
    }
    // SAFETY: the program's timeout; the kernel says what is wrong with a bad pointer.
    let time = unsafe { user::read(timeout) }.ok()?;
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return None;
    }
    Some(
        time.tv_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(time.tv_nsec),
    )
}

fn count(result: Result<usize, i32>) -> c_int {
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

/// Bit `fd` of a program's set of descriptors, which may be longer than `fd_set`.
unsafe fn is_set(set: *const fd_set, fd: usize) -> bool {
    // SAFETY: the program's set has at least `fd` bits.
    !set.is_null()
        && unsafe { set.cast::<u64>().add(fd / SET_BITS).read_unaligned() } >> (fd % SET_BITS) & 1
            == 1
}

unsafe fn put(set: *mut fd_set, fd: usize, on: bool) {
    if set.is_null() {
        return;
    }
    // SAFETY: the program's set has at least `fd` bits.
    unsafe {
        let word = set.cast::<u64>().add(fd / SET_BITS);
        let bit = 1u64 << (fd % SET_BITS);
        let old = word.read_unaligned();
        word.write_unaligned(if on { old | bit } else { old & !bit });
    }
}

/// The poll set that stands for three select sets. `None` where none of it concerns us.
unsafe fn gather(
    most: c_int,
    read: *const fd_set,
    write: *const fd_set,
    except: *const fd_set,
) -> Option<Vec<pollfd>> {
    let most = usize::try_from(most).ok()?;
    for set in [read, write, except] {
        if !set.is_null() {
            // SAFETY: the program's sets.
            unsafe { user::probe(set.cast(), most.div_ceil(SET_BITS) * 8).ok()? };
        }
    }
    let mut concerned = false;
    let mut set = Vec::new();
    for number in 0..most {
        // SAFETY: the caller's sets have `most` bits.
        let (wants_read, wants_write, wants_except) = unsafe {
            (
                is_set(read, number),
                is_set(write, number),
                is_set(except, number),
            )
        };
        if !(wants_read || wants_write || wants_except) {
            continue;
        }
        let fd = c_int::try_from(number).ok()?;
        concerned |= matches!(
            table::get(fd).kind(),
            Kind::Virtual | Kind::Listener | Kind::Epoll
        );
        let mut events = 0;
        if wants_read {
            events |= libc::POLLIN | libc::POLLRDNORM;
        }
        if wants_write {
            events |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if wants_except {
            events |= libc::POLLPRI;
        }
        set.push(pollfd {
            fd,
            events,
            revents: 0,
        });
    }
    (concerned && polling::concerns(&set)).then_some(set)
}

/// Writes the outcome back into the three sets and counts as select does.
unsafe fn scatter(
    set: &[pollfd],
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> Result<usize, i32> {
    if set.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    let mut total = 0;
    for entry in set {
        let Ok(number) = usize::try_from(entry.fd) else {
            continue;
        };
        let seen = entry.revents;
        let on_read = seen & (libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR);
        let on_write = seen & (libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR);
        for (target, wanted, on) in [
            (read, libc::POLLIN, on_read != 0),
            (write, libc::POLLOUT, on_write != 0),
            (except, libc::POLLPRI, seen & libc::POLLPRI != 0),
        ] {
            let on = on && entry.events & wanted != 0;
            if entry.events & wanted != 0 {
                // SAFETY: the program's sets.
                unsafe { put(target, number, on) };
                total += usize::from(on);
            }
        }
    }
    Ok(total)
}

/// The program's entries when any of them concerns the library. `None` where the kernel shall do
/// it, and say what is wrong with them.
unsafe fn entries<'a>(set: *mut pollfd, length: nfds_t) -> Option<&'a mut [pollfd]> {
    let length = length as usize;
    if length > MOST_ENTRIES {
        return None;
    }
    // SAFETY: the program's entries, looked at only where they can be read.
    unsafe {
        user::probe(set.cast(), length * size_of::<pollfd>()).ok()?;
        Some(array_mut(set, length)).filter(|entries| polling::concerns(entries))
    }
}

/// More descriptors than this no process can have.
const MOST_ENTRIES: usize = 1 << 20;

hook! {
    fn poll(set: *mut pollfd, length: nfds_t, timeout: c_int) -> c_int {
        let Some(entries) = entries(set, length) else { return real::poll(set, length, timeout) };
        let limit = if timeout < 0 { -1 } else { i64::from(timeout) * 1_000_000 };
        count(polling::poll(entries, limit, core::ptr::null()))
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
        let Some(entries) = entries(set, length) else {
            return real::ppoll(set, length, timeout, mask);
        };
        match nanoseconds(timeout) {
            Some(limit) => count(polling::poll(entries, limit, mask)),
            None => real::fail(libc::EINVAL),
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
        let Some(mut set) = gather(most, read, write, except) else {
            return real::select(most, read, write, except, timeout);
        };
        let mut limit = -1;
        if !timeout.is_null() {
            let time = timeout.read_unaligned();
            if time.tv_sec < 0 || time.tv_usec < 0 {
                return real::fail(libc::EINVAL);
            }
            limit = time.tv_sec.saturating_mul(1_000_000_000)
                .saturating_add(time.tv_usec.saturating_mul(1000));
        }
        let start = crate::clock::nanoseconds();
        let polled = polling::poll(&mut set, limit, core::ptr::null());
        if limit >= 0 {
            // Linux says what was left.
            let left = epoll::remaining(limit, start);
            timeout.write_unaligned(timeval {
                tv_sec: left / 1_000_000_000,
                tv_usec: left % 1_000_000_000 / 1000,
            });
        }
        match polled {
            Ok(_) => count(scatter(&set, read, write, except)),
            Err(error) => real::fail(error),
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
        let Some(mut set) = gather(most, read, write, except) else {
            return real::pselect(most, read, write, except, timeout, mask);
        };
        let Some(limit) = nanoseconds(timeout) else { return real::fail(libc::EINVAL) };
        match polling::poll(&mut set, limit, mask) {
            Ok(_) => count(scatter(&set, read, write, except)),
            Err(error) => real::fail(error),
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
        match (epoll::of(set), usize::try_from(most)) {
            // An inactive set's events are written by the kernel, which says what is wrong.
            (Some(known), Ok(room @ 1..))
                if !known.is_active() && !events.is_null()
                    || user::probe_write(events.cast()).is_ok() =>
            {
                let limit = if timeout < 0 { -1 } else { i64::from(timeout) * 1_000_000 };
                count(known.wait(array_mut(events, room), limit, mask))
            }
            _ => real::epoll_pwait(set, events, most, timeout, mask),
        }
    }

    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        match (epoll::of(set), usize::try_from(most), nanoseconds(timeout)) {
            (Some(known), Ok(room @ 1..), Some(limit))
                if user::probe_write(events.cast()).is_ok() =>
            {
                count(known.wait(array_mut(events, room), limit, mask))
            }
            _ => real::epoll_pwait2(set, events, most, timeout, mask),
        }
    }
}
