//! `poll` by `select`. The kernel polls no more descriptors than the program's limit allows, and a program may lower
//! that limit to zero while it keeps open descriptors. `select` has no such limit.

use libc::{POLLHUP, POLLIN, POLLOUT, POLLPRI, pollfd, sigset_t};

use super::{Sys, has_hung_up, raw};

const BITS: usize = 64;

/// For each of the three sets: the events that ask for it, and the event that membership reports.
const SETS: [(i16, i16); 3] = [
    (POLLIN | libc::POLLRDNORM, POLLIN),
    (POLLOUT | libc::POLLWRNORM, POLLOUT),
    (POLLPRI, POLLPRI),
];

/// As [`super::poll`], for open descriptors. Hang-ups are reported for sockets only.
///
/// # Errors
/// As `ppoll`.
#[cold]
pub fn poll(set: &mut [pollfd], nanoseconds: i64, mask: *const sigset_t) -> Sys<usize> {
    let highest = set.iter().map(|entry| entry.fd).max().unwrap_or(-1);
    let most = usize::try_from(highest + 1).unwrap_or(0);
    let mut words = vec![0_u64; most.div_ceil(BITS) * SETS.len()];
    let place = |number: usize, fd: i32| {
        let fd = usize::try_from(fd).ok()?;
        Some((
            number * most.div_ceil(BITS) + fd / BITS,
            1_u64 << (fd % BITS),
        ))
    };
    for entry in &*set {
        // An entry that asks for no event asks for the hang-up.
        let asked = if entry.events == 0 {
            POLLIN
        } else {
            entry.events
        };
        for (number, (wanted, _)) in SETS.iter().enumerate() {
            if asked & wanted != 0
                && let Some((word, bit)) = place(number, entry.fd)
                && let Some(word) = words.get_mut(word)
            {
                *word |= bit;
            }
        }
    }
    select(most, &mut words, nanoseconds, mask)?;
    let mut count = 0;
    for entry in set.iter_mut() {
        entry.revents = 0;
        for (number, (wanted, reported)) in SETS.iter().enumerate() {
            let (word, bit) = place(number, entry.fd).unwrap_or((usize::MAX, 0));
            if words.get(word).is_some_and(|word| word & bit != 0) {
                entry.revents |= reported & (entry.events & wanted);
                if *reported == POLLIN && has_hung_up(entry.fd) {
                    entry.revents |= POLLHUP;
                }
            }
        }
        count += usize::from(entry.revents != 0);
    }
    Ok(count)
}

fn select(most: usize, words: &mut [u64], nanoseconds: i64, mask: *const sigset_t) -> Sys<usize> {
    let mut time = libc::timespec {
        tv_sec: nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    let limit = if nanoseconds < 0 {
        0
    } else {
        (&raw mut time).addr()
    };
    let signals = [mask.addr(), 8];
    let mut sets = [0; 3];
    if !words.is_empty() {
        for (address, part) in sets.iter_mut().zip(words.chunks_mut(most.div_ceil(BITS))) {
            *address = part.as_mut_ptr().addr();
        }
    }
    let [read, write, except] = sets;
    // SAFETY: three sets of `most` bits, `time`, and the mask of the caller, or null.
    unsafe {
        let words = [most, read, write, except, limit, signals.as_ptr().addr()];
        raw(libc::SYS_pselect6, words)
    }
}
