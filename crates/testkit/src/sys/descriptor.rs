//! Calls that work on any descriptor.

use std::mem::zeroed;

use super::{Descriptor, Outcome, check, check_unit};
use crate::far;

/// `close`
pub fn close(descriptor: Descriptor) -> Outcome<()> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.close();
    }
    // SAFETY: takes an integer; cases own what they close.
    check_unit(unsafe { libc::close(descriptor) })
}

/// `dup`
pub fn dup(descriptor: Descriptor) -> Outcome<Descriptor> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.dup();
    }
    // SAFETY: takes an integer.
    check(unsafe { libc::dup(descriptor) })
}

/// `dup2`
pub fn dup2(from: Descriptor, to: Descriptor) -> Outcome<Descriptor> {
    far::only_near(from.max(to), "dup2");
    // SAFETY: takes integers; cases own what they replace.
    check(unsafe { libc::dup2(from, to) })
}

/// `dup3`
pub fn dup3(from: Descriptor, to: Descriptor, flags: libc::c_int) -> Outcome<Descriptor> {
    far::only_near(from.max(to), "dup3");
    // SAFETY: takes integers; cases own what they replace.
    check(unsafe { libc::dup3(from, to, flags) })
}

/// `fcntl` with an integer
pub fn fcntl(
    descriptor: Descriptor,
    command: libc::c_int,
    value: libc::c_int,
) -> Outcome<libc::c_int> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.fcntl(command, value);
    }
    // SAFETY: only commands that take an integer are used.
    check(unsafe { libc::fcntl(descriptor, command, value) })
}

/// `ioctl` with a pointer to an integer; answers what the integer became
pub fn ioctl_int(
    descriptor: Descriptor,
    request: libc::c_ulong,
    value: libc::c_int,
) -> Outcome<libc::c_int> {
    if let Some(far_descriptor) = far::of(descriptor) {
        return far_descriptor.ioctl_int(request, value);
    }
    let mut value = value;
    // SAFETY: only requests that take a pointer to an int are used.
    check_unit(unsafe { libc::ioctl(descriptor, request, &raw mut value) })?;
    Ok(value)
}

/// `ioctl` without an argument
pub fn ioctl_none(descriptor: Descriptor, request: libc::c_ulong) -> Outcome<()> {
    far::only_near(descriptor, "ioctl");
    // SAFETY: only requests that take nothing are used.
    check_unit(unsafe { libc::ioctl(descriptor, request) })
}

/// `fstat`
pub fn fstat(descriptor: Descriptor) -> Outcome<libc::stat> {
    far::only_near(descriptor, "fstat");
    // SAFETY: a stat of zeroes is a valid value.
    let mut answer: libc::stat = unsafe { zeroed() };
    // SAFETY: answer has room.
    check_unit(unsafe { libc::fstat(descriptor, &raw mut answer) })?;
    Ok(answer)
}

/// `lseek`
pub fn lseek(descriptor: Descriptor, offset: i64, whence: libc::c_int) -> Outcome<i64> {
    far::only_near(descriptor, "lseek");
    // SAFETY: takes integers.
    let position = unsafe { libc::lseek(descriptor, offset, whence) };
    if position < 0 {
        Err(super::last_errno())
    } else {
        Ok(position)
    }
}

/// `pipe2`: reader, then writer
pub fn pipe(flags: libc::c_int) -> Outcome<[Descriptor; 2]> {
    let mut ends = [0; 2];
    // SAFETY: ends has room for the two descriptors.
    check_unit(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) })?;
    Ok(ends)
}

/// `close_range`
pub fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_int) -> Outcome<()> {
    // SAFETY: takes integers; cases own what they close.
    check_unit(unsafe { libc::close_range(first, last, flags) })
}
