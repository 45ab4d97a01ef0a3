//! Numbers for the library's own descriptors, outside of the program's range.
//!
//! They lie above the program's soft limit. The limit is raised for the one call that makes a descriptor, as far as the
//! hard limit allows, and the program never sees it raised. Where the hard limit leaves no room, the library and the
//! program share the range. A program with few numbers and no room above them keeps all of them, and uses kernel TCP.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::OnceLock;

use libc::c_int;

use crate::descriptors::table;
use crate::ground::lock::Lock;
use crate::ground::{process, sys};

/// The soft limit as last read.
#[unsafe(link_section = ".data.netchannel_start")]
static SOFT: AtomicI32 = AtomicI32::new(i32::MAX);
/// The library has no numbers.
#[unsafe(link_section = ".data.netchannel_start")]
static SCARCE: AtomicBool = AtomicBool::new(false);

/// Higher numbers are expensive: the kernel's table of descriptors is as long as the highest one, and every fork copies
/// it and every end goes through it: 10 microseconds for a thousand numbers, each time.
const HIGHEST: u64 = 16_384;
/// Where the library is within the program's range anyway, it is no farther up than most programs come.
const HIGHEST_SHARED: u64 = 1024;
/// Numbers above the soft limit that are enough for the library.
const ROOM: u64 = 256;
/// A program with so many numbers can share them.
const PLENTY: u64 = 4096;

/// The first number of the library under these limits, and whether there is no room for it.
const fn place_library_range(soft: u64, hard: u64) -> (u64, bool) {
    let soft = if soft < hard { soft } else { hard };
    let has_room = hard - soft >= ROOM;
    if has_room && soft <= HIGHEST {
        return (soft, false);
    }
    let half = hard / 2;
    let shared = if half < HIGHEST_SHARED {
        half
    } else {
        HIGHEST_SHARED
    };
    (shared, !has_room && hard < PLENTY)
}

/// Reads the limits: at the start, and when the program has changed them.
pub fn refresh() {
    if process::is_vfork_child() {
        return;
    }
    let Some(limit) = exchange(None) else { return };
    let (high, poor) = place_library_range(limit.rlim_cur, limit.rlim_max);
    SOFT.store(
        i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX),
        Ordering::Relaxed,
    );
    let high = i32::try_from(high).unwrap_or(256).max(16);
    SCARCE.store(poor, Ordering::Relaxed);
    table::split_at(high);
}

/// First number of the library's descriptors.
#[inline]
pub fn first_library_number() -> i32 {
    table::first_library_number()
}

/// The soft limit of the program, as last read.
#[inline]
pub fn soft() -> usize {
    usize::try_from(SOFT.load(Ordering::Relaxed)).unwrap_or(0)
}

/// Whether the program keeps all its numbers: then its sockets are the kernel's.
#[inline]
pub fn are_scarce() -> bool {
    SCARCE.load(Ordering::Relaxed)
}

/// Whether the kernel will take these limits and they leave the library no numbers.
pub fn leaves_no_room(limit: &libc::rlimit) -> bool {
    let possible = exchange(None)
        .is_some_and(|now| limit.rlim_max <= now.rlim_max && limit.rlim_cur <= limit.rlim_max);
    possible && place_library_range(limit.rlim_cur, limit.rlim_max).1
}

/// Whether the program may be given this number: a number that it already has may lie above a lowered limit.
pub fn allow(number: c_int) -> bool {
    let _guard = LIMIT.lock();
    let within = |limit: libc::rlimit| u64::try_from(number).is_ok_and(|it| it < limit.rlim_cur);
    exchange(None).is_none_or(within)
}

/// Whether the program may make files of so many bytes. A larger one would raise a signal.
pub fn allow_file(bytes: usize) -> bool {
    let limit = sys::limit(libc::RLIMIT_FSIZE, None);
    limit.is_ok_and(|limit| bytes as u64 <= limit.rlim_cur)
}

/// Whether `resource` is the number of descriptors.
pub fn is_nofile(resource: c_int) -> bool {
    sys::is_limit(resource, libc::RLIMIT_NOFILE)
}

/// Whether the program has used up its numbers; `any` is an open descriptor. Asks the kernel only where the highest
/// number that the library has seen is near the limit.
pub fn are_exhausted(any: c_int) -> bool {
    const NEAR: usize = 64;
    if table::highest().saturating_add(NEAR) < soft() {
        return false;
    }
    match sys::duplicate(any, 0, true) {
        Ok(free) => {
            sys::close(free);
            false
        }
        Err(error) => error == libc::EMFILE,
    }
}

/// Whether a closed number lies above the kernel's table of descriptors that the process would have without the
/// library. The kernel makes a table of 64 entries, and doubles it for a higher number.
#[cold]
pub fn is_beyond_table(number: c_int) -> bool {
    const FIRST: c_int = 64;
    if number < FIRST {
        return false;
    }
    let mut from = 1 << number.ilog2();
    while from < first_library_number() {
        const AT_A_TIME: usize = 256;
        let mut set = [libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        }; AT_A_TIME];
        for (entry, number) in set.iter_mut().zip(from..first_library_number()) {
            entry.fd = number;
        }
        let is_open = |entry: &libc::pollfd| entry.fd >= 0 && entry.revents & libc::POLLNVAL == 0;
        let any = match sys::poll_all(&mut set) {
            Ok(_) => set.iter().any(is_open),
            // The limit does not allow polling so many.
            Err(_) => set.iter().any(|entry| sys::is_open(entry.fd)),
        };
        if any {
            return false;
        }
        from += AT_A_TIME as c_int;
    }
    true
}

/// Closes descriptors that the library can do without, and returns whether there were any. Registered by the module
/// that has them.
pub static SPARES: OnceLock<fn() -> bool> = OnceLock::new();

#[cold]
fn drop_spares() -> bool {
    SPARES.get().is_some_and(|drop| drop())
}

/// Makes a descriptor for the program. Where the library shares the program's numbers, it closes spare ones if need be.
///
/// # Errors
/// Those of `make`.
pub fn for_program<R>(mut make: impl FnMut() -> Result<R, c_int>) -> Result<R, c_int> {
    match make() {
        Err(libc::EMFILE) if drop_spares() => make(),
        result => result,
    }
}

/// Held while the limit is raised, and while the program reads or changes it.
#[unsafe(link_section = ".data.netchannel_start")]
static LIMIT: Lock<()> = Lock::new(());

fn exchange(new: Option<&libc::rlimit>) -> Option<libc::rlimit> {
    sys::limit(libc::RLIMIT_NOFILE, new).ok()
}

/// Runs `work` with the soft limit raised to the hard limit.
pub fn with_room<R>(work: impl FnOnce() -> R) -> R {
    let Some(_guard) = LIMIT.lock() else {
        return work();
    };
    let Some(before) = exchange(None).filter(|limit| limit.rlim_cur < limit.rlim_max) else {
        return work();
    };
    let raised = libc::rlimit {
        rlim_cur: before.rlim_max,
        ..before
    };
    if exchange(Some(&raised)).is_none() {
        return work();
    }
    let result = work();
    exchange(Some(&before));
    result
}

/// Makes a descriptor for the library, with a raised limit where the program has no number left.
///
/// # Errors
/// Those of `make`.
pub fn for_library<R>(mut make: impl FnMut() -> Result<R, c_int>) -> Result<R, c_int> {
    match make() {
        // The requested number lies above the soft limit: EINVAL.
        Err(libc::EMFILE | libc::EINVAL) => match with_room(&mut make) {
            Err(libc::EMFILE) if drop_spares() => with_room(make),
            result => result,
        },
        result => result,
    }
}

/// As [`sys::replace`], also where the program has lowered its limit below a number that it has.
///
/// # Errors
/// Those of `dup3`.
pub fn replace(from: c_int, to: c_int, close_on_exec: bool) -> Result<c_int, c_int> {
    match sys::replace(from, to, close_on_exec) {
        Err(libc::EBADF) => with_room(|| sys::replace(from, to, close_on_exec)),
        result => result,
    }
}

/// A stream socket of the library's own, closed on exec.
///
/// # Errors
/// Those of `socket`.
pub fn stream_socket(family: c_int) -> Result<c_int, c_int> {
    for_library(|| sys::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))
}

/// Receives a message with all of its descriptors, or leaves it in the queue. The caller is the only reader.
///
/// # Errors
/// Those of `recvmsg`. `EMFILE` where not all descriptors found a number: the message stays in the queue. `EPROTO`
/// where they can not be received although there are numbers, or are more than any of our messages carries.
pub fn receive_message(
    fd: c_int,
    bytes: &mut [u8],
    descriptors: &mut [c_int; sys::MOST],
) -> Result<(usize, usize), c_int> {
    let looked = for_library(|| sys::peek_message(fd, bytes, descriptors));
    let got = match looked {
        Err(libc::EMFILE)
            if with_room(|| has_numbers(sys::MOST, || sys::duplicate(fd, 0, true))) =>
        {
            return Err(libc::EPROTO);
        }
        got => got?,
    };
    // The descriptors were received by the peek: those of the message itself are dropped.
    match sys::receive(fd, &mut [0], libc::MSG_DONTWAIT) {
        Ok(_) => Ok(got),
        Err(error) => {
            descriptors
                .iter()
                .take(got.1)
                .for_each(|fd| sys::close(*fd));
            Err(error)
        }
    }
}

/// Whether a program without a daemon has the numbers to take a connection up: for a region of its own, the link, and
/// the region of the connection's program.
pub fn has_room_for_a_connection() -> bool {
    with_room(|| has_numbers(3, || sys::open(c"/", libc::O_PATH)))
}

/// Whether `make` makes so many descriptors, at most as many as a message has.
fn has_numbers(wanted: usize, mut make: impl FnMut() -> Result<c_int, c_int>) -> bool {
    let mut made = [-1; sys::MOST];
    let count = made
        .iter_mut()
        .take(wanted)
        .map_while(|made| {
            *made = make().ok()?;
            Some(())
        })
        .count();
    made.iter().take(count).for_each(|fd| sys::close(*fd));
    count == wanted
}

/// Runs a call in which the program reads or changes its limits, and which must not see a raised limit.
pub fn under_limit_lock<R>(resource: c_int, work: impl FnOnce() -> R) -> R {
    if !is_nofile(resource) {
        return work();
    }
    let _guard = LIMIT.lock();
    work()
}

/// Whether [`before_fork`] holds the lock.
#[unsafe(link_section = ".data.netchannel_start")]
static FORKING: AtomicBool = AtomicBool::new(false);

/// Before a fork: the child must not inherit a raised limit.
pub fn before_fork() {
    if let Some(guard) = LIMIT.lock() {
        core::mem::forget(guard);
        FORKING.store(true, Ordering::Relaxed);
    }
}

/// Whether the calling thread is in [`before_fork`] and still holds the lock.
pub fn is_forking() -> bool {
    LIMIT.is_mine() && FORKING.load(Ordering::Relaxed)
}

/// After a fork, in both processes.
pub fn after_fork() {
    if FORKING.swap(false, Ordering::Relaxed) {
        LIMIT.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_numbers_lie_beyond_the_programs_or_far_away() {
        assert_eq!(
            place_library_range(1024, 524_288),
            (1024, false),
            "a service's limits"
        );
        assert_eq!(place_library_range(64, 4096), (64, false));
        assert_eq!(
            place_library_range(1 << 20, 1 << 20),
            (1024, false),
            "a container's"
        );
        assert_eq!(place_library_range(1 << 19, 1 << 20), (1024, false));
        assert_eq!(place_library_range(16_384, 1 << 20), (16_384, false));
        assert_eq!(place_library_range(4096, 4096), (1024, false));
        for few in [64, 300, 1024] {
            assert!(place_library_range(few, few).1, "{few} and none beyond");
        }
        assert!(place_library_range(u64::MAX, u64::MAX).0 <= HIGHEST);
    }

    #[test]
    fn a_message_whose_descriptors_find_no_number_waits() {
        let (one, other) = sys::socket_pair(libc::SOCK_SEQPACKET).unwrap();
        let (bytes, sent) = ([7; 8], [one, other, one]);
        sys::send_message(one, &bytes, &sent, 0).unwrap();
        let mut got = [0; 8];
        let mut descriptors = [-1; sys::MOST];
        // The limit on numbers needs a process of its own.
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limit = libc::rlimit {
                rlim_cur: 6,
                rlim_max: 6,
            };
            // SAFETY: no pointers; nothing else uses the child's descriptors.
            unsafe {
                libc::dup2(other, 3);
                libc::close_range(4, u32::MAX, 0);
            }
            let lowered = exchange(Some(&limit)).is_some();
            let first = receive_message(3, &mut got, &mut descriptors);
            sys::close(2);
            let second = receive_message(3, &mut got, &mut descriptors);
            let right = lowered && first == Err(libc::EMFILE) && second == Ok((8, 3));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!right || got != bytes)) };
        }
        let mut status = 0;
        // SAFETY: the status is a local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        sys::close(one);
        sys::close(other);
    }
}
