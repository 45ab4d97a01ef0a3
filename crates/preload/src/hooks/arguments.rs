//! The address and the buffers that a call is given, and whether one that sends has a first byte: only that announces a
//! connection whose listener waits for one (`TCP_DEFER_ACCEPT`). A call that fails, or sends nothing, leaves it as it is.

use libc::{c_int, iovec, msghdr, sockaddr, socklen_t};

use crate::descriptors::{names, user};
use crate::processes::rights;

/// As `through`, for calls that send, with these flags.
macro_rules! sending {
    ($fd:expr, $flags:expr, $has_byte:expr, $kernel:expr, |$lane:ident| $virtual:expr) => {
        match deferred::at($fd)
            .map(|socket| $has_byte.and_then(|any| deferred::connect_to_send(&socket, $flags, any)))
        {
            Some(Ok(false)) => 0,
            Some(Err(error)) => real::fail(error),
            Some(Ok(true)) | None => through!($fd, $kernel, |$lane| $virtual),
        }
    };
}
pub(super) use sending;

/// Checks the address of a send as the kernel does. A connected socket ignores it; with `MSG_FASTOPEN` it must be an
/// address to connect to.
///
/// # Safety
/// The address is the program's.
pub unsafe fn check_target(
    address: *const sockaddr,
    length: socklen_t,
    flags: c_int,
) -> Result<(), i32> {
    // SAFETY: the program's address.
    unsafe { names::check(address, length)? };
    if flags & libc::MSG_FASTOPEN == 0 {
        return Ok(());
    }
    if (length as usize) < size_of::<libc::sa_family_t>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the same.
    if unsafe { names::is_unspecified(address, length) } {
        return Err(libc::EOPNOTSUPP);
    }
    Ok(())
}

/// The buffers of a message.
///
/// # Safety
/// The list is the program's.
#[inline(always)]
pub unsafe fn buffers_of(message: &msghdr) -> Result<user::Vectors, i32> {
    if message.msg_iovlen > 1024 {
        return Err(libc::EMSGSIZE);
    }
    // SAFETY: the program's list.
    unsafe { user::vectors(message.msg_iov, message.msg_iovlen) }
}

/// How many bytes a message has; 0 where its list is not readable.
///
/// # Safety
/// The message is the program's.
pub unsafe fn size_of_message(message: *const msghdr) -> usize {
    // SAFETY: the caller's promise.
    let buffers = unsafe { user::read(message).and_then(|message| buffers_of(&message)) };
    buffers.map_or(0, |list| list.iter().map(|one| one.iov_len).sum())
}

/// Whether there is a byte to send.
///
/// # Errors
/// `EFAULT` where the first byte is not readable.
///
/// # Safety
/// The buffers are the program's.
pub unsafe fn has_byte(buffers: &[iovec]) -> Result<bool, c_int> {
    let Some(first) = buffers.iter().find(|one| one.iov_len > 0) else {
        return Ok(false);
    };
    // SAFETY: the caller's promise.
    unsafe { user::read(first.iov_base.cast::<u8>()) }.map(|_| true)
}

/// As [`has_byte`], for `writev`.
///
/// # Errors
/// As `writev`.
///
/// # Safety
/// The list is the program's.
pub unsafe fn vectors_have_byte(vectors: *const iovec, count: c_int) -> Result<bool, c_int> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    // SAFETY: the caller's promise.
    unsafe { has_byte(&user::vectors(vectors, count)?) }
}

/// As [`has_byte`], for `sendto`.
///
/// # Errors
/// As `sendto`.
///
/// # Safety
/// The buffers and the address are the program's.
pub unsafe fn has_byte_for(
    buffers: &[iovec],
    address: *const sockaddr,
    length: socklen_t,
    flags: c_int,
) -> Result<bool, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        if !address.is_null() {
            check_target(address, length, flags)?;
        }
        has_byte(buffers)
    }
}

/// As [`has_byte`], for `sendmsg`.
///
/// # Errors
/// As `sendmsg`.
///
/// # Safety
/// The message is the program's.
pub unsafe fn message_has_byte(message: *const msghdr) -> Result<bool, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let message = user::read(message)?;
        names::check_in_message(&message)?;
        let list = buffers_of(&message)?;
        if message.msg_controllen > 0 {
            rights::check(&message)?;
        }
        has_byte(&list)
    }
}
