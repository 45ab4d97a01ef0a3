//! `sendmsg`, `recvmsg` and their plural forms.

use std::mem::zeroed;

use super::{Descriptor, Outcome, check, check_size};
use crate::far;

/// A message header with nothing in it.
#[must_use]
pub fn empty_message() -> libc::msghdr {
    // SAFETY: a msghdr of zeroes is valid: no name, no vector, no control.
    unsafe { zeroed() }
}

/// An entry of a vector for bytes that are only read.
#[must_use]
pub fn entry(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// An entry of a vector for bytes that are written.
#[must_use]
pub fn entry_mut(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// `sendmsg`
///
/// # Safety
/// Everything that `message` points at is valid for its length.
pub unsafe fn sendmsg(
    descriptor: Descriptor,
    message: &libc::msghdr,
    flags: libc::c_int,
) -> Outcome<usize> {
    far::only_near(descriptor, "sendmsg");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::sendmsg(descriptor, message, flags) })
}

/// `recvmsg`
///
/// # Safety
/// Everything that `message` points at is valid and writable for its length.
pub unsafe fn recvmsg(
    descriptor: Descriptor,
    message: &mut libc::msghdr,
    flags: libc::c_int,
) -> Outcome<usize> {
    far::only_near(descriptor, "recvmsg");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::recvmsg(descriptor, message, flags) })
}

/// A part of a vector that can be neither read nor written.
#[must_use]
pub fn bad_entry() -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(1),
        iov_len: 100,
    }
}

/// `sendmsg` of a vector and nothing else
pub fn send_vector(descriptor: Descriptor, parts: &[&[u8]], flags: libc::c_int) -> Outcome<usize> {
    let mut vector: Vec<_> = parts.iter().map(|part| entry(part)).collect();
    let mut message = empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = vector.len();
    // SAFETY: the vector's entries are readable for their lengths.
    unsafe { sendmsg(descriptor, &message, flags) }
}

/// `recvmsg` into a vector; answers the size and the flags of the message
pub fn recv_vector(
    descriptor: Descriptor,
    parts: &mut [&mut [u8]],
    flags: libc::c_int,
) -> Outcome<(usize, libc::c_int)> {
    let mut vector: Vec<_> = parts.iter_mut().map(|part| entry_mut(part)).collect();
    let mut message = empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = vector.len();
    // SAFETY: the vector's entries are writable for their lengths and do not overlap.
    let size = unsafe { recvmsg(descriptor, &mut message, flags) }?;
    Ok((size, message.msg_flags))
}

/// `sendmmsg` with one part per message; answers the size each message got
pub fn sendmmsg(descriptor: Descriptor, parts: &[&[u8]], flags: libc::c_int) -> Outcome<Vec<u32>> {
    far::only_near(descriptor, "sendmmsg");
    let mut vector: Vec<_> = parts.iter().map(|part| entry(part)).collect();
    let mut messages = headers(&mut vector);
    let length = u32::try_from(messages.len()).expect("few messages");
    // SAFETY: every header points at one readable entry.
    let sent = check(unsafe { libc::sendmmsg(descriptor, messages.as_mut_ptr(), length, flags) })?;
    let sent = usize::try_from(sent).unwrap_or_default();
    Ok(messages
        .iter()
        .take(sent)
        .map(|message| message.msg_len)
        .collect())
}

/// `recvmmsg` with one part per message; answers the size each message got
pub fn recvmmsg(
    descriptor: Descriptor,
    parts: &mut [&mut [u8]],
    flags: libc::c_int,
) -> Outcome<Vec<u32>> {
    far::only_near(descriptor, "recvmmsg");
    let mut vector: Vec<_> = parts.iter_mut().map(|part| entry_mut(part)).collect();
    let mut messages = headers(&mut vector);
    let length = u32::try_from(messages.len()).expect("few messages");
    let forever = std::ptr::null_mut();
    // SAFETY: every header points at one writable entry; no time-out.
    let received = check(unsafe {
        libc::recvmmsg(descriptor, messages.as_mut_ptr(), length, flags, forever)
    })?;
    let received = usize::try_from(received).unwrap_or_default();
    Ok(messages
        .iter()
        .take(received)
        .map(|message| message.msg_len)
        .collect())
}

fn headers(vector: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let header = |entry: &mut libc::iovec| {
        let mut message = empty_message();
        message.msg_iov = entry;
        message.msg_iovlen = 1;
        libc::mmsghdr {
            msg_hdr: message,
            msg_len: 0,
        }
    };
    vector.iter_mut().map(header).collect()
}

#[repr(align(8))]
struct ControlRoom([u8; 64]);

/// Sends one byte with a descriptor attached (`SCM_RIGHTS`).
pub fn send_descriptor(channel: Descriptor, passed: Descriptor) -> Outcome<()> {
    far::only_near(passed, "passing a descriptor");
    let byte = [b'D'];
    let mut vector = [entry(&byte)];
    let mut control = ControlRoom([0; 64]);
    let size = super::length_of::<Descriptor>();
    let mut message = empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE(size) };
    message.msg_controllen = usize::try_from(space).unwrap_or_default();
    // SAFETY: the control room is aligned and larger than the one header and descriptor put into it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = usize::try_from(libc::CMSG_LEN(size)).unwrap_or_default();
        libc::CMSG_DATA(header)
            .cast::<Descriptor>()
            .write_unaligned(passed);
    }
    // SAFETY: vector and control are alive.
    unsafe { sendmsg(channel, &message, 0) }.map(|_| ())
}

/// Receives one byte with a descriptor attached; panics where there is none.
pub fn recv_descriptor(channel: Descriptor) -> Outcome<Descriptor> {
    let mut byte = [0_u8];
    let mut vector = [entry_mut(&mut byte)];
    let mut control = ControlRoom([0; 64]);
    let mut message = empty_message();
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: vector and control are alive and writable.
    unsafe { recvmsg(channel, &mut message, 0) }?;
    // SAFETY: the kernel filled the header it points at, if any.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    assert!(!header.is_null(), "a message without a descriptor");
    // SAFETY: not null, and a SCM_RIGHTS header carries at least one descriptor.
    Ok(unsafe {
        libc::CMSG_DATA(header)
            .cast::<Descriptor>()
            .read_unaligned()
    })
}
