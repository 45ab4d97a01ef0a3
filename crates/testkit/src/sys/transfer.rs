//! Sending and receiving bytes.

use std::net::SocketAddr;

use super::{Descriptor, Outcome, RawAddress, check_size};
use crate::far;

/// `send`
pub fn send(descriptor: Descriptor, bytes: &[u8], flags: libc::c_int) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.send(bytes, flags);
    }
    // SAFETY: bytes is readable for its length.
    check_size(unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// `recv`
pub fn recv(descriptor: Descriptor, bytes: &mut [u8], flags: libc::c_int) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.recv(bytes, flags);
    }
    // SAFETY: bytes is writable for its length.
    check_size(unsafe { libc::recv(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), flags) })
}

/// `recv` with any pointer and length, for calls that must be refused or need no buffer.
///
/// # Safety
/// The kernel may write `length` bytes at `pointer`, if they are mapped.
pub unsafe fn recv_raw(
    descriptor: Descriptor,
    pointer: *mut u8,
    length: usize,
    flags: libc::c_int,
) -> Outcome<usize> {
    far::only_near(descriptor, "recv of any pointer");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::recv(descriptor, pointer.cast(), length, flags) })
}

/// `send` with any pointer and length, for calls that must be refused.
///
/// # Safety
/// `pointer` must not be readable memory that others write meanwhile.
pub unsafe fn send_raw(
    descriptor: Descriptor,
    pointer: *const u8,
    length: usize,
    flags: libc::c_int,
) -> Outcome<usize> {
    far::only_near(descriptor, "send of any pointer");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::send(descriptor, pointer.cast(), length, flags) })
}

/// `sendto`
pub fn sendto(
    descriptor: Descriptor,
    bytes: &[u8],
    flags: libc::c_int,
    address: SocketAddr,
) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.sendto(bytes, flags, address);
    }
    let raw = RawAddress::from(address);
    // SAFETY: bytes is readable for its length, raw holds an address of the length given.
    check_size(unsafe {
        libc::sendto(
            descriptor,
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
            (&raw const raw.storage).cast(),
            raw.length,
        )
    })
}

/// `recvfrom`. Also returns the address length that the kernel reports.
pub fn recvfrom(
    descriptor: Descriptor,
    bytes: &mut [u8],
    flags: libc::c_int,
) -> Outcome<(usize, libc::socklen_t)> {
    far::only_near(descriptor, "recvfrom");
    let mut raw = RawAddress::empty();
    // SAFETY: bytes is writable for its length, raw has room for the length given.
    let size = check_size(unsafe {
        libc::recvfrom(
            descriptor,
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
            (&raw mut raw.storage).cast(),
            &raw mut raw.length,
        )
    })?;
    Ok((size, raw.length))
}

/// `read`
pub fn read(descriptor: Descriptor, bytes: &mut [u8]) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.read(bytes);
    }
    // SAFETY: bytes is writable for its length.
    check_size(unsafe { libc::read(descriptor, bytes.as_mut_ptr().cast(), bytes.len()) })
}

/// `write`
pub fn write(descriptor: Descriptor, bytes: &[u8]) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.write(bytes);
    }
    // SAFETY: bytes is readable for its length.
    check_size(unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) })
}

/// `pread`
pub fn pread(descriptor: Descriptor, bytes: &mut [u8], offset: i64) -> Outcome<usize> {
    far::only_near(descriptor, "pread");
    // SAFETY: bytes is writable for its length.
    check_size(unsafe { libc::pread(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), offset) })
}

/// `pwrite`
pub fn pwrite(descriptor: Descriptor, bytes: &[u8], offset: i64) -> Outcome<usize> {
    far::only_near(descriptor, "pwrite");
    // SAFETY: bytes is readable for its length.
    check_size(unsafe { libc::pwrite(descriptor, bytes.as_ptr().cast(), bytes.len(), offset) })
}

fn gather(parts: &[&[u8]]) -> Vec<libc::iovec> {
    let entry = |part: &&[u8]| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    parts.iter().map(entry).collect()
}

fn scatter(parts: &mut [&mut [u8]]) -> Vec<libc::iovec> {
    let entry = |part: &mut &mut [u8]| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    };
    parts.iter_mut().map(entry).collect()
}

fn count(vector: &[libc::iovec]) -> libc::c_int {
    libc::c_int::try_from(vector.len()).expect("vectors are short")
}

/// `writev`
pub fn writev(descriptor: Descriptor, parts: &[&[u8]]) -> Outcome<usize> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.writev(parts);
    }
    let vector = gather(parts);
    // SAFETY: every entry is readable for its length.
    check_size(unsafe { libc::writev(descriptor, vector.as_ptr(), count(&vector)) })
}

/// `writev` of any vector, for parts that must be refused.
///
/// # Safety
/// Entries of mapped memory are readable for their lengths.
pub unsafe fn writev_raw(descriptor: Descriptor, vector: &[libc::iovec]) -> Outcome<usize> {
    far::only_near(descriptor, "writev of any vector");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::writev(descriptor, vector.as_ptr(), count(vector)) })
}

/// `readv` into any vector, for parts that must be refused.
///
/// # Safety
/// Entries of mapped memory are writable for their lengths, and nobody else uses them.
pub unsafe fn readv_raw(descriptor: Descriptor, vector: &[libc::iovec]) -> Outcome<usize> {
    far::only_near(descriptor, "readv of any vector");
    // SAFETY: as the caller promises.
    check_size(unsafe { libc::readv(descriptor, vector.as_ptr(), count(vector)) })
}

/// `readv`
pub fn readv(descriptor: Descriptor, parts: &mut [&mut [u8]]) -> Outcome<usize> {
    far::only_near(descriptor, "readv");
    let vector = scatter(parts);
    // SAFETY: every entry is writable for its length, and they do not overlap.
    check_size(unsafe { libc::readv(descriptor, vector.as_ptr(), count(&vector)) })
}

/// `preadv2` at the current position (-1)
pub fn preadv2(
    descriptor: Descriptor,
    parts: &mut [&mut [u8]],
    flags: libc::c_int,
) -> Outcome<usize> {
    far::only_near(descriptor, "preadv2");
    let vector = scatter(parts);
    // SAFETY: every entry is writable for its length, and they do not overlap.
    check_size(unsafe { libc::preadv2(descriptor, vector.as_ptr(), count(&vector), -1, flags) })
}

/// `pwritev2` at the current position (-1)
pub fn pwritev2(descriptor: Descriptor, parts: &[&[u8]], flags: libc::c_int) -> Outcome<usize> {
    far::only_near(descriptor, "pwritev2");
    let vector = gather(parts);
    // SAFETY: every entry is readable for its length.
    check_size(unsafe { libc::pwritev2(descriptor, vector.as_ptr(), count(&vector), -1, flags) })
}

/// `sendfile`, from the file's own position or from `offset`
pub fn sendfile(
    output: Descriptor,
    input: Descriptor,
    offset: Option<&mut i64>,
    length: usize,
) -> Outcome<usize> {
    far::only_near(output.max(input), "sendfile");
    let pointer = offset.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: pointer is null or a valid offset.
    check_size(unsafe { libc::sendfile(output, input, pointer, length) })
}

/// `splice` without offsets
pub fn splice(
    input: Descriptor,
    output: Descriptor,
    length: usize,
    flags: libc::c_uint,
) -> Outcome<usize> {
    far::only_near(output.max(input), "splice");
    let none = std::ptr::null_mut();
    // SAFETY: null offsets mean that there are none.
    check_size(unsafe { libc::splice(input, none, output, none, length, flags) })
}
