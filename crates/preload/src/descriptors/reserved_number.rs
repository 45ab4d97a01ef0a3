//! The number that an `accept` will give is chosen when it begins to wait: the kernel takes it before it looks for a connection, and
//! what other threads open meanwhile has other numbers. So a descriptor of the library's holds it.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, confinement, limits};
use crate::ground::sys;

/// Accepts of this process that wait at once and hold a number; others choose theirs in the end.
const MOST: usize = 64;
const FREE: i32 = -1;
/// The program has put something else under the number.
const LOST: i32 = -2;

static PLACES: [AtomicI32; MOST] = [const { AtomicI32::new(FREE) }; MOST];

/// A number that is held.
#[derive(Clone, Copy)]
pub struct ReservedNumber(usize);

impl ReservedNumber {
    /// The lowest number that is free, if any. What lies under it answers every call on sockets and files as if it was closed; where
    /// none can be opened, it is the file of `fd`.
    pub fn hold(fd: i32) -> Option<Self> {
        let opened = match confinement::is_filtered() {
            true => Err(libc::EPERM),
            false => sys::open(c"/", libc::O_PATH),
        };
        let number = opened.or_else(|_| sys::duplicate(fd, 0, true)).ok()?;
        table::set(number, Word::new(Kind::Internal, 0, 0));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let take = |place: &AtomicI32| place.compare_exchange(FREE, number, order.0, order.1);
        let held = PLACES.iter().position(|place| take(place).is_ok());
        if held.is_none() {
            attach::drop_kept(number);
        }
        held.map(Self)
    }

    fn take(self) -> Option<i32> {
        let place = PLACES.get(self.0)?;
        let number = place.swap(FREE, Ordering::AcqRel);
        (number >= 0).then_some(number)
    }

    /// Holds it no longer.
    pub fn leave(self) {
        attach::drop_kept(self.take().unwrap_or(-1));
    }

    /// A duplicate of `fd` under the number.
    pub fn fill(self, fd: i32, close_on_exec: bool) -> Option<i32> {
        let number = self.take()?;
        table::set(number, Word::FOREIGN);
        match sys::replace(fd, number, close_on_exec) {
            Ok(_) => Some(number),
            Err(_) => {
                sys::close(number);
                None
            }
        }
    }
}

/// A duplicate of an anchor for the program, under the number that was held, or the lowest.
///
/// # Errors
/// As `dup`.
pub fn number(
    place: &mut Option<ReservedNumber>,
    anchor: i32,
    close_on_exec: bool,
) -> Result<i32, i32> {
    match place
        .take()
        .and_then(|place| place.fill(anchor, close_on_exec))
    {
        Some(number) => Ok(number),
        None => limits::for_program(|| sys::duplicate(anchor, 0, close_on_exec)),
    }
}

/// The number of an anchor that has one of the program's already: that, or the one that was held.
pub fn settle(place: &mut Option<ReservedNumber>, anchor: i32, close_on_exec: bool) -> i32 {
    let held = place.take();
    match held.and_then(|place| place.fill(anchor, close_on_exec)) {
        Some(number) => {
            sys::close(anchor);
            number
        }
        None => anchor,
    }
}

/// Whether an accept that waits will return this number: nothing else can be put there.
pub fn is_held(number: i32) -> bool {
    let is = |place: &AtomicI32| place.load(Ordering::Relaxed) == number;
    table::get(number).kind() == Kind::Internal && PLACES.iter().any(is)
}

/// The program puts something under a number that was held; what holds it lies under `to` by now.
pub fn relocate(from: i32, to: i32) {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    for place in &PLACES {
        if place.compare_exchange(from, LOST, order.0, order.1).is_ok() {
            attach::drop_kept(to);
        }
    }
}

/// In a forked child no accept waits: to it these numbers are free.
pub fn reset_in_child() {
    for place in &PLACES {
        attach::drop_kept(place.swap(FREE, Ordering::Relaxed));
    }
}
