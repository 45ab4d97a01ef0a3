//! The identity of the file behind a descriptor.

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
