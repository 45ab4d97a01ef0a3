//! Access to the program's memory, which may be invalid: with the fault handler installed, a fault becomes `EFAULT`, as
//! in the kernel.

use core::mem::MaybeUninit;
use core::ops::Deref;
use std::ffi::CString;

use libc::{c_char, c_int, c_void, iovec};
use netchannel_shm::copy;

use crate::descriptors::faults;

/// Reads a value.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// Whatever bytes lie there are a valid `T`.
#[inline]
pub unsafe fn read<T: Copy>(from: *const T) -> Result<T, c_int> {
    // A program that never met a daemon has no virtual sockets, but its calls come here, too.
    faults::ensure();
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the target is ours; the source may fault.
    let left = unsafe { copy::copy(value.as_mut_ptr().cast(), from.cast(), size_of::<T>()) };
    if left > 0 {
        return Err(libc::EFAULT);
    }
    // SAFETY: all of it was written; the caller promises that any bytes are valid.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The program gave the place to be written to.
#[inline]
pub unsafe fn write<T: Copy>(to: *mut T, value: T) -> Result<(), c_int> {
    // SAFETY: the source is ours; the target may fault.
    unsafe { copy_bytes(to.cast(), (&raw const value).cast(), size_of::<T>()) }
}

/// Copies bytes to or from the program.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// One range is ours, the other was given by the program for this.
#[inline]
pub unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) -> Result<(), c_int> {
    faults::ensure();
    // SAFETY: the caller's promise.
    if unsafe { copy::copy(to, from, length) } > 0 {
        return Err(libc::EFAULT);
    }
    Ok(())
}

const PAGE: usize = 4096;

/// Checks that `length` bytes are readable now, by reading one byte of each page.
///
/// # Safety
/// The program gave the range to be read.
pub unsafe fn probe_read(from: *const u8, length: usize) -> Result<(), c_int> {
    let mut at = 0;
    while at < length {
        // SAFETY: the caller's promise.
        unsafe { read(from.wrapping_add(at))? };
        at = if at + PAGE < length || at + 1 == length {
            at + PAGE
        } else {
            length - 1
        };
    }
    Ok(())
}

/// Checks that the byte is writable now, by writing its own value.
///
/// # Safety
/// The program gave the byte to be written.
#[inline]
pub unsafe fn probe_write(to: *mut u8) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(to, to, 1) }
}

/// Bytes of a string that are read at a time.
const PIECE: usize = 256;

/// Copies a C string.
///
/// # Errors
/// `EFAULT`, also for null.
///
/// # Safety
/// The program gave the string to be read.
pub unsafe fn string(from: *const c_char) -> Result<CString, c_int> {
    if from.is_null() {
        return Err(libc::EFAULT);
    }
    let mut bytes = Vec::new();
    loop {
        // The bytes behind the end on the same page are readable, too.
        let start = bytes.len();
        let at = from.wrapping_add(start);
        let length = PIECE.min(PAGE - at.addr() % PAGE);
        bytes.resize(start + length, 0);
        let piece = &mut bytes[start..];
        // SAFETY: the target is ours, the source was given by the program.
        unsafe { copy_bytes(piece.as_mut_ptr(), at.cast(), length)? };
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            bytes.truncate(start + end);
            return CString::new(bytes).map_err(|_| libc::EFAULT);
        }
    }
}

/// Copies the beginning of a C string, up to its end or to the size of `into`.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The program gave the string to be read.
pub unsafe fn beginning(from: *const c_char, into: &mut [u8]) -> Result<&[u8], c_int> {
    let mut known = 0;
    while known < into.len() {
        let at = from.wrapping_add(known);
        // The bytes behind the end on the same page are readable, too.
        let length = (into.len() - known).min(PAGE - at.addr() % PAGE);
        let piece = into.get_mut(known..known + length).ok_or(libc::EFAULT)?;
        // SAFETY: the target is ours, the source was given by the program.
        unsafe { copy_bytes(piece.as_mut_ptr(), at.cast(), length)? };
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            return into.get(..known + end).ok_or(libc::EFAULT);
        }
        known += length;
    }
    Ok(into)
}

/// Copies a list of pointers up to its null, which is left out. An absent list is an empty one.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The program gave the list to be read.
pub unsafe fn pointers(from: *const *const c_char) -> Result<Vec<*const c_char>, c_int> {
    let mut all = Vec::new();
    while !from.is_null() {
        // SAFETY: the caller's promise; any bytes are a pointer.
        let one = unsafe { read(from.wrapping_add(all.len()))? };
        if one.is_null() {
            break;
        }
        all.push(one);
    }
    Ok(all)
}

/// Most bytes that the kernel transfers in one call.
const MOST_BYTES: usize = 0x7fff_f000;
const FEW: usize = 8;

/// No address of a program lies above it.
pub const END: usize = 1 << if cfg!(target_arch = "x86_64") { 47 } else { 52 };

/// Whether a range lies in a program's address space: the kernel refuses any other one before it looks at the socket.
#[inline]
fn check_range(base: usize, length: usize) -> Result<(), c_int> {
    match base.checked_add(length) {
        Some(0..=END) => Ok(()),
        _ => Err(libc::EFAULT),
    }
}

/// One buffer as a vector.
pub const fn vector(base: *const c_void, length: usize) -> [iovec; 1] {
    [iovec {
        iov_base: base.cast_mut(),
        iov_len: length,
    }]
}

/// A buffer of `recv` or `send` as a list of one, shortened as the kernel does.
///
/// # Errors
/// `EFAULT`.
#[inline]
pub fn buffer(base: *const c_void, length: usize) -> Result<[iovec; 1], c_int> {
    let length = length.min(MOST_BYTES);
    check_range(base.addr(), length)?;
    Ok(vector(base, length))
}

/// A buffer of `read` or `write`, which the kernel checks before it shortens it.
///
/// # Errors
/// `EFAULT`.
#[inline]
pub fn read_write_buffer(base: *const c_void, length: usize) -> Result<[iovec; 1], c_int> {
    check_range(base.addr(), length)?;
    Ok(vector(base, length.min(MOST_BYTES)))
}

/// A private copy of a program's list of buffers.
pub struct Vectors {
    few: [iovec; FEW],
    many: Vec<iovec>,
    count: usize,
}

impl Deref for Vectors {
    type Target = [iovec];
    #[inline]
    fn deref(&self) -> &[iovec] {
        if self.count <= FEW {
            &self.few[..self.count]
        } else {
            &self.many
        }
    }
}

/// Copies a list of buffers, checked and shortened as the kernel does.
///
/// # Errors
/// `EFAULT`, or `EINVAL` for a negative length.
///
/// # Safety
/// The program gave `count` entries to be read.
#[inline(always)]
pub unsafe fn vectors(from: *const iovec, count: usize) -> Result<Vectors, c_int> {
    const NONE: iovec = iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    };
    let mut made = Vectors {
        few: [NONE; FEW],
        many: Vec::new(),
        count,
    };
    let entries = if count <= FEW {
        &mut made.few[..count]
    } else {
        made.many.resize(count, NONE);
        &mut made.many[..]
    };
    let bytes = size_of_val(entries);
    // SAFETY: the target is ours, the source was given by the program.
    unsafe { copy_bytes(entries.as_mut_ptr().cast(), from.cast(), bytes)? };
    let mut total = 0;
    for entry in entries {
        if isize::try_from(entry.iov_len).is_err() {
            return Err(libc::EINVAL);
        }
        check_range(entry.iov_base.addr(), entry.iov_len)?;
        entry.iov_len = entry.iov_len.min(MOST_BYTES - total);
        total += entry.iov_len;
    }
    Ok(made)
}
