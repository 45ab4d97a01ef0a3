//! The functions that take the place of the C library's.

/// Defines functions under the C library's names. Their bodies may use the program's pointers as the C functions do.
///
/// A call within the library by such a name is a call of the function itself. The exported name could lead to the
/// program, where that defines the same name, as Erlang does with `sigaction`, and from there back to here.
///
/// Cancellation of a thread unwinds through these functions. They are `extern "C"` on purpose: panics abort, so no
/// function here has a landing pad, and unwinding passes over all of them. With `"C-unwind"`, functions that call the C
/// library would get one, and the gaps in its table would end the program.
macro_rules! hook {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            /// Takes the place of the C function of this name.
            ///
            /// # Safety
            /// As the C function.
            #[inline]
            #[allow(non_snake_case, reason = "the C library's names")]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the arguments are those that the C function would get.
                unsafe { $body }
            }

            const _: () = {
                // Beside each other: programs without sockets execute little else of the library.
                #[unsafe(no_mangle)]
                #[unsafe(link_section = ".text.netchannel_start")]
                unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                    // SAFETY: the arguments are those that the C function would get.
                    unsafe { self::$name($($argument),*) }
                }
            };
        )*
    };
}

mod arguments;
mod borrowing;
mod data;
mod datagrams;
mod descriptors;
mod ending;
mod lifecycle;
mod limits;
mod numbers;
mod privileges;
mod processes;
mod readiness;
mod resolving;
mod rings;
mod selecting;
mod signals;
mod splicing;
pub(crate) mod streams;

use libc::c_int;

use crate::connections::connection;
use crate::descriptors::table::{self, Kind};
use crate::sockets::socket::{self, status};

/// Called before a call that resolves its descriptor itself: a connect that the kernel is to carry on becomes the
/// kernel's.
#[inline]
pub(crate) fn advance_connect(fd: c_int) {
    let word = table::get(fd);
    if word.kind() == Kind::Virtual
        && socket::of_word(word).is_some_and(|socket| socket.has(status::PENDING))
    {
        connection::is_connected_yet(fd);
    }
}

/// A program's array as a slice; empty where the count is 0 or the pointer null.
///
/// # Safety
/// `pointer` points at `count` values that no other code uses meanwhile, or is null.
pub(crate) unsafe fn array_mut<'a, T>(pointer: *mut T, count: usize) -> &'a mut [T] {
    if pointer.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(pointer, count) }
}
