//! The functions that take the place of the C library's.

/// Defines functions under the C library's names. Their bodies may do what the C functions do with
/// the program's pointers.
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
mod processes;
mod readiness;
mod signals;
pub(crate) mod streams;

pub use streams::Functions as StreamFunctions;

use core::ptr::null_mut;

use libc::{c_int, iovec};

use crate::lane::Lane;
use crate::socket;
use crate::table::{self, Kind};

/// The lane behind a descriptor, when it is a connected virtual socket.
#[inline]
pub(crate) fn lane(fd: c_int) -> Option<Lane> {
    let word = table::get(fd);
    if word.kind() != Kind::Virtual {
        return None;
    }
    Lane::of(socket::of_word(word)?, fd)
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
/// `pointer` points at `count` values, or is null.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if pointer.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(pointer, count) }
}

/// As [`array`], to write.
///
/// # Safety
/// `pointer` points at `count` values that nobody else uses meanwhile, or is null.
pub(crate) unsafe fn array_mut<'a, T>(pointer: *mut T, count: usize) -> &'a mut [T] {
    if pointer == null_mut() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(pointer, count) }
}
