//! A mapped region.

use crate::{Shared, copy};
use core::ffi::CStr;
use core::ptr::NonNull;

/// Why a region could not be made or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmError {
    /// A system call failed with this errno.
    System(i32),
    /// The file can still shrink or grow, or has not the size that was promised.
    NotSealed,
}

/// What the mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// A shared mapping of a sealed memfd. Unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the region is only reached through atomics and raw copies, from any thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn errno() -> i32 {
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() }
}

impl Region {
    /// Makes a memfd of `size` bytes, sealed against any change of size, and maps it. The
    /// descriptor has close-on-exec and belongs to the caller.
    ///
    /// # Errors
    /// The errno of what failed.
    pub fn create(name: &CStr, size: usize) -> Result<(i32, Self), ShmError> {
        // SAFETY: plain system call with a valid string.
        let descriptor = unsafe {
            libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if descriptor < 0 {
            return Err(ShmError::System(errno()));
        }
        let sealed = || {
            let length = i64::try_from(size).map_err(|_| ShmError::System(libc::EFBIG))?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            // SAFETY: plain system calls on our own descriptor.
            unsafe {
                if libc::ftruncate(descriptor, length) < 0
                    || libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) < 0
                {
                    return Err(ShmError::System(errno()));
                }
            }
            Self::map(descriptor, size, Access::ReadWrite)
        };
        match sealed() {
            Ok(region) => Ok((descriptor, region)),
            Err(error) => {
                // SAFETY: the descriptor is ours and not used again.
                unsafe { libc::close(descriptor) };
                Err(error)
            }
        }
    }

    /// Maps `size` bytes of a memfd that somebody else made, once it is seen to be sealed and to
    /// have that size. The descriptor stays the caller's and may be closed.
    ///
    /// # Errors
    /// [`ShmError::NotSealed`] when the file's size could change or is another.
    pub fn map(descriptor: i32, size: usize, access: Access) -> Result<Self, ShmError> {
        let wanted = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: plain system call.
        let seals = unsafe { libc::fcntl(descriptor, libc::F_GET_SEALS) };
        // SAFETY: all zero is a valid stat.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: `stat` is ours to write.
        let known = unsafe { libc::fstat(descriptor, &raw mut stat) } == 0;
        if seals < 0
            || seals & wanted != wanted
            || !known
            || i64::try_from(size) != Ok(stat.st_size)
        {
            return Err(ShmError::NotSealed);
        }
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                descriptor,
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().addr() != usize::MAX => Ok(Self { base, size }),
            _ => Err(ShmError::System(errno())),
        }
    }

    /// Bytes of the region.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The structure at `offset`, or `None` where it would not lie wholly and aligned within.
    #[inline]
    #[must_use]
    pub fn at<T: Shared>(&self, offset: usize) -> Option<&T> {
        self.slice(offset, 1).and_then(|slice| slice.first())
    }

    /// `count` structures from `offset` on, or `None` where they would not lie within.
    #[inline]
    #[must_use]
    pub fn slice<T: Shared>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        if offset > self.size
            || self.size - offset < bytes
            || !offset.is_multiple_of(align_of::<T>())
        {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as `self`; aligned; `T: Shared` is valid
        // for any bytes and only changes atomically.
        Some(unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) })
    }

    /// Copies a program's bytes to `offset`. Returns how many could not be copied: all of them
    /// where the range does not lie within, otherwise see [`copy::copy`].
    ///
    /// # Safety
    /// `from` must be a range of the program that may be read as raw bytes, or fault.
    #[inline]
    pub unsafe fn copy_in(&self, offset: usize, from: *const u8, length: usize) -> usize {
        if offset > self.size || self.size - offset < length {
            return length;
        }
        // SAFETY: the target lies within the mapping; the source is the caller's promise.
        unsafe { copy::copy(self.base.as_ptr().add(offset), from, length) }
    }

    /// Copies bytes at `offset` to a program's buffer. Returns how many could not be copied.
    ///
    /// # Safety
    /// `to` must be a range of the program that may be written as raw bytes, or fault.
    #[inline]
    pub unsafe fn copy_out(&self, offset: usize, to: *mut u8, length: usize) -> usize {
        if offset > self.size || self.size - offset < length {
            return length;
        }
        // SAFETY: the source lies within the mapping; the target is the caller's promise.
        unsafe { copy::copy(to, self.base.as_ptr().add(offset), length) }
    }

    /// Gives the pages that lie wholly within a range back to the system; they read as zero.
    pub fn release_pages(&self, offset: usize, length: usize) {
        if offset > self.size || self.size - offset < length || !offset.is_multiple_of(4096) {
            return;
        }
        // SAFETY: within the mapping; MADV_REMOVE frees the pages of the shared file.
        unsafe {
            libc::madvise(
                self.base.as_ptr().add(offset).cast(),
                length,
                libc::MADV_REMOVE,
            );
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}
