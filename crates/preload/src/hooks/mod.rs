//! The functions that take the place of the C library's.

/// Defines functions under the C library's names. Their bodies may do what the C functions do with
/// the program's pointers.
///
/// Cancellation of a thread unwinds through them. They are `extern "C"` on purpose: panics abort, so
/// no function here has a landing pad, and unwinding walks over all of them. With `"C-unwind"` those
/// that call the C library would get one, and the gaps in its table would end the program.
macro_rules! hook {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            /// Takes the place of the C function of this name.
            ///
            /// # Safety
            /// As the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the arguments are what the C function would have been given.
                unsafe { $body }
            }
        )*
    };
}

mod data;
mod descriptors;
mod lifecycle;
mod numbers;
mod privileges;
mod processes;
mod readiness;
mod rings;
mod selecting;
mod signals;
mod splicing;
pub(crate) mod streams;

pub use streams::Functions as StreamFunctions;

use libc::{c_int, iovec};

use crate::connection::{self, carried};
use crate::lane::Lane;
use crate::socket::{self, status};
use crate::table::{self, Kind};

/// The lane behind a descriptor, when it is a connected virtual socket.
#[inline]
pub(crate) fn lane(fd: c_int) -> Option<Lane> {
    let word = table::get(fd);
    match word.kind() {
        Kind::Virtual => {
            let lane = Lane::of(socket::of_word(word)?, fd)?;
            if lane.socket.has(status::PENDING) {
                return connecting(lane);
            }
            Some(lane)
        }
        Kind::Fresh => {
            becomes_real(fd);
            None
        }
        _ => None,
    }
}

/// Before a call that finds out by itself what a descriptor is: a connect that the kernel is to carry on becomes the kernel's.
#[inline]
pub(crate) fn look_at_connect(fd: c_int) {
    let word = table::get(fd);
    if word.kind() == Kind::Virtual
        && let Some(socket) = socket::of_word(word)
        && socket.has(status::PENDING)
        && let Some(lane) = Lane::of(socket, fd)
    {
        let _ = connecting(lane);
    }
}

/// One whose connect is under way; none where the kernel carries it on from now on.
#[cold]
fn connecting(lane: Lane) -> Option<Lane> {
    lane.progress();
    carried::carry();
    (table::get(lane.fd) == lane.socket.word).then_some(lane)
}

/// The kernel will be asked about a socket that it does not know yet. Where none can be made it answers for one that it connects to
/// nothing.
#[cold]
fn becomes_real(fd: c_int) {
    let _ = connection::before_kernel_use(fd);
}

/// One buffer as a vector.
pub(crate) const fn vector(base: *const libc::c_void, length: usize) -> [iovec; 1] {
    [iovec {
        iov_base: base.cast_mut(),
        iov_len: length,
    }]
}

/// A program's array as a slice; empty where the count is not positive or the pointer null.
///
/// # Safety
/// `pointer` points at `count` values that nobody else uses meanwhile, or is null.
pub(crate) unsafe fn array_mut<'a, T>(pointer: *mut T, count: usize) -> &'a mut [T] {
    if pointer.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(pointer, count) }
}
