//! What the kernel tells of the file behind a descriptor.

use libc::c_int;

use super::{int, raw};

/// Device and inode of the file behind a descriptor.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all zero is a valid `stat`.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let words = [int(fd), (&raw mut found).addr(), 0, 0, 0, 0];
    // SAFETY: the kernel writes to a local.
    unsafe { raw(libc::SYS_fstat, words) }.ok()?;
    Some((found.st_dev, found.st_ino))
}

/// The number that an `ioctl` such as `FIONREAD` tells of a descriptor.
///
/// # Errors
/// Those of `ioctl`.
pub fn count(fd: c_int, request: libc::Ioctl) -> Result<c_int, c_int> {
    let mut told: c_int = 0;
    let place = (&raw mut told).addr();
    // SAFETY: the kernel writes to a local int.
    unsafe {
        super::raw(
            libc::SYS_ioctl,
            [super::int(fd), request as usize, place, 0, 0, 0],
        )
    }?;
    Ok(told)
}
