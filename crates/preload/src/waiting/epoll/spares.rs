//! Inner sets and wake-up descriptors made before the program lowers its hard limit: afterwards each would take one of
//! the program's numbers.

use super::all;
use crate::descriptors::{attach, limits};
use crate::ground::lock::Lock;
use crate::ground::sys;

/// Spares for so many sets that the program makes later; further ones take a number, if there is one.
const MOST: usize = 4;

/// Descriptors of the library.
struct Spares {
    sets: Vec<i32>,
    counters: Vec<i32>,
}

static SPARES: Lock<Spares> = Lock::new(Spares {
    sets: Vec::new(),
    counters: Vec::new(),
});

/// Makes the spares, before the process has no numbers for the library.
pub fn prepare() {
    for set in all().filter(|set| set.is_open()) {
        if set.activate().is_ok() {
            let _ = set.make_wake_descriptor();
        }
    }
    let Some(mut spares) = SPARES.lock() else {
        return;
    };
    let Spares { sets, counters } = &mut *spares;
    while sets.len() < MOST
        && let Ok(made) = limits::for_library(sys::epoll_create)
    {
        sets.push(attach::make_internal(made));
    }
    while counters.len() < MOST
        && let Ok(made) = limits::for_library(|| sys::event_counter(0))
    {
        counters.push(attach::make_internal(made));
    }
}

/// An inner set.
///
/// # Errors
/// Those of `epoll_create`.
pub(super) fn set() -> Result<i32, i32> {
    match take(|spares| spares.sets.pop()) {
        Some(spare) => Ok(spare),
        None => limits::for_library(sys::epoll_create).map(attach::make_internal),
    }
}

/// An eventfd that wakes sleepers.
///
/// # Errors
/// Those of `eventfd`.
pub(super) fn counter() -> Result<i32, i32> {
    match take(|spares| spares.counters.pop()) {
        Some(spare) => Ok(spare),
        None => limits::for_library(|| sys::event_counter(0)).map(attach::make_internal),
    }
}

fn take(from: impl FnOnce(&mut Spares) -> Option<i32>) -> Option<i32> {
    if !limits::are_scarce() {
        return None;
    }
    from(&mut *SPARES.lock()?)
}

/// Notes that a descriptor of the library has a new number.
pub(super) fn relocate(from: i32, to: i32) {
    if let Some(mut spares) = SPARES.lock() {
        let Spares { sets, counters } = &mut *spares;
        for spare in sets.iter_mut().chain(counters) {
            if *spare == from {
                *spare = to;
            }
        }
    }
}

/// In a forked child: the spares are the parent's, too, and can not serve both.
pub(super) fn reset_in_child() {
    SPARES.reset();
    if let Some(mut spares) = SPARES.lock() {
        let Spares { sets, counters } = &mut *spares;
        for spare in sets.drain(..).chain(counters.drain(..)) {
            attach::close_internal(spare);
        }
    }
}
