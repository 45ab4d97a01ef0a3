//! The number that a blocking `accept` will return is chosen when it begins to wait: the kernel reserves it before it
//! looks for a connection, and descriptors that other threads open meanwhile get other numbers. So a descriptor of the
//! library's reserves the number.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, confinement, limits};
use crate::ground::sys;

/// Waiting accepts of this process that reserve a number; further ones choose theirs at the end.
const MOST: usize = 64;
const FREE: i32 = -1;
/// The program has put another file under the number.
const REPLACED: i32 = -2;

static RESERVED: [AtomicI32; MOST] = [const { AtomicI32::new(FREE) }; MOST];

/// A reserved number.
#[derive(Clone, Copy)]
pub struct ReservedNumber(usize);

impl ReservedNumber {
    /// Reserves the lowest free number, if any. The file under it makes every call on sockets and files fail as if the
    /// number was closed; where no such file can be opened, it is a duplicate of `fd`.
    pub fn reserve(fd: i32) -> Option<Self> {
        let opened = match confinement::is_filtered() {
            true => Err(libc::EPERM),
            false => sys::open(c"/", libc::O_PATH),
        };
        let number = opened.or_else(|_| sys::duplicate(fd, 0, true)).ok()?;
        table::set(number, Word::new(Kind::Internal, 0, 0));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let take = |place: &AtomicI32| place.compare_exchange(FREE, number, order.0, order.1);
        let held = RESERVED.iter().position(|place| take(place).is_ok());
        if held.is_none() {
            attach::close_internal(number);
        }
        held.map(Self)
    }

    fn take(self) -> Option<i32> {
        let place = RESERVED.get(self.0)?;
        let number = place.swap(FREE, Ordering::AcqRel);
        (number >= 0).then_some(number)
    }

    /// Releases the number.
    pub fn leave(self) {
        attach::close_internal(self.take().unwrap_or(-1));
    }

    /// Puts a duplicate of `fd` under the number.
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

/// Duplicates an anchor for the program, under the reserved number or the lowest one.
///
/// # Errors
/// As `dup`.
pub fn assign(
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

/// The number of an anchor that already has one of the program's: that one, or the reserved one.
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

/// Whether a waiting accept will return this number: nothing else can be put there.
pub fn is_reserved(number: i32) -> bool {
    let is = |place: &AtomicI32| place.load(Ordering::Relaxed) == number;
    table::get(number).kind() == Kind::Internal && RESERVED.iter().any(is)
}

/// The program puts another file under a reserved number; the reserving descriptor has been moved to `to`.
pub fn relocate(from: i32, to: i32) {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    for place in &RESERVED {
        if place
            .compare_exchange(from, REPLACED, order.0, order.1)
            .is_ok()
        {
            attach::close_internal(to);
        }
    }
}

/// In a forked child no accept waits: these numbers are free there.
pub fn reset_in_child() {
    for place in &RESERVED {
        attach::close_internal(place.swap(FREE, Ordering::Relaxed));
    }
}
