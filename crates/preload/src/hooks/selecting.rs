//! `select` as a poll: three sets of bits become entries, and the answers become bits again.

use libc::{c_int, fd_set, pollfd, sigset_t, timespec, timeval};

use super::readiness::{Timeout, concerns_library, count};
use crate::descriptors::{limits, user};
use crate::ground::{real, sys};
use crate::waiting::poll::{ASKED, COUNTS, Entries, EventFilter};

const SET_BITS: usize = 64;

/// A word of a set of descriptors, which may be longer than `fd_set`; 0 for an absent set.
unsafe fn word(set: *const fd_set, index: usize) -> Result<u64, i32> {
    if set.is_null() {
        return Ok(0);
    }
    // SAFETY: the program's set.
    unsafe { user::read(set.cast::<u64>().wrapping_add(index)) }
}

/// The poll entries for three select sets. `None` where none of them concerns the library, unless they are `wanted` all
/// the same, or where the kernel shall find the error.
unsafe fn to_entries(
    entries: &mut Entries,
    most: c_int,
    sets: [*mut fd_set; 3],
    wanted: bool,
) -> Option<()> {
    let most = usize::try_from(most).ok()?;
    let mut concerned = wanted;
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
            concerned |= concerns_library(fd);
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

/// Writes the results into the three sets, and counts as select does.
unsafe fn to_sets(entries: &[pollfd], sets: [*mut fd_set; 3]) -> Result<usize, i32> {
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
        // The first word is always written, of the others those that had a bit.
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

/// Corrects the kernel's answer to a `select` that does not concern the library. The kernel also sees the library's own
/// numbers, so its table of descriptors is longer than the program's would be.
pub(super) unsafe fn corrected_result(
    result: c_int,
    most: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
) -> c_int {
    if result >= 0 || real::errno() != libc::EBADF {
        return result;
    }
    // SAFETY: the program's arguments.
    unsafe {
        let mut entries = Entries::new(EventFilter::Select);
        if to_entries(&mut entries, most, sets, true).is_some() && remove_beyond_table(&mut entries)
        {
            let polled = timeout.poll(&mut entries, mask);
            return count(polled.and_then(|_| to_sets(&entries, sets)));
        }
    }
    real::fail(libc::EBADF)
}

/// Removes numbers above the process's table of descriptors, at which the kernel does not look. Whether there were any.
fn remove_beyond_table(entries: &mut [pollfd]) -> bool {
    let closed = entries.iter_mut().filter(|entry| !sys::is_open(entry.fd));
    let mut beyond = false;
    for entry in closed.filter(|entry| limits::is_beyond_table(entry.fd)) {
        *entry = pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        };
        beyond = true;
    }
    beyond
}

/// `select`. `None` where no descriptor concerns the library: then the kernel does it, and finds errors.
pub(super) unsafe fn try_select(
    most: c_int,
    sets: [*mut fd_set; 3],
    timeout: Timeout,
    mask: *const sigset_t,
) -> Option<Result<usize, i32>> {
    // SAFETY: the program's arguments.
    unsafe {
        let mut entries = Entries::new(EventFilter::Select);
        to_entries(&mut entries, most, sets, false)?;
        let mut polled = timeout.poll(&mut entries, mask);
        let closed = match &polled {
            Ok(_) => entries
                .iter()
                .any(|entry| entry.revents & libc::POLLNVAL != 0),
            Err(error) => *error == libc::EBADF,
        };
        if closed && remove_beyond_table(&mut entries) {
            polled = timeout.poll(&mut entries, mask);
        }
        Some(polled.and_then(|_| to_sets(&entries, sets)))
    }
}

hook! {
    fn select(
        most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        let limit = Timeout::Timeval(timeout);
        match try_select(most, [read, write, except], limit, core::ptr::null()) {
            Some(result) => count(result),
            None => {
                let result = real::select(most, read, write, except, timeout);
                corrected_result(result, most, [read, write, except], limit, core::ptr::null())
            }
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
        match try_select(most, [read, write, except], Timeout::Constant(timeout), mask) {
            Some(result) => count(result),
            None => {
                let result = real::pselect(most, read, write, except, timeout, mask);
                let limit = Timeout::Constant(timeout);
                corrected_result(result, most, [read, write, except], limit, mask)
            }
        }
    }
}
