//! `res_query` and its like: the program reads the answers itself.

use core::ffi::CStr;

use libc::c_int;

use super::results::{self, TRY_AGAIN};
use super::tenant::Tenant;
use crate::resolver::{Failure, Name};

/// The class of the Internet.
const INTERNET: c_int = 1;

/// As the C functions, whose answer was `length`: what a server answers, as far as there is room, and the length of all of it.
///
/// # Safety
/// The name is a C string, and `answer` has `room` bytes.
pub unsafe fn answer(
    length: c_int,
    (name, searches): (*const libc::c_char, bool),
    (class, kind): (c_int, c_int),
    (answer, room): (*mut u8, c_int),
) -> c_int {
    // SAFETY: a thread-local.
    let is_unknown = unsafe { *results::error_place() } == TRY_AGAIN;
    let (Ok(kind), Ok(room)) = (u16::try_from(kind), usize::try_from(room)) else {
        return length;
    };
    if length >= 0 || !is_unknown || class != INTERNET {
        return length;
    }
    let Some(tenant) = Tenant::of_program() else {
        return length;
    };
    // SAFETY: the program's string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let found = tenant.resolve(true, |resolver| match searches {
        true => resolver.search(name, &[kind]),
        false => match Name::parse(name) {
            Some(name) => resolver.query(&name, &[kind]),
            None => Err(Failure::NoRecovery),
        },
    });
    let found = found.and_then(|found| {
        let raw = found.0.into_iter().find_map(|reply| reply.raw);
        raw.ok_or(Failure::NoRecovery)
    });
    match found {
        Ok((message, _)) => {
            let count = message.len().min(room);
            // SAFETY: the program's buffer has room for so many.
            unsafe { core::ptr::copy_nonoverlapping(message.as_ptr(), answer, count) };
            c_int::try_from(message.len()).unwrap_or(c_int::MAX)
        }
        Err(failure) => {
            // SAFETY: a thread-local.
            unsafe { results::error_place().write(results::error_of(failure)) };
            -1
        }
    }
}
