//! A mapped region.

use crate::error::{ShmError, errno};
use crate::{Outside, Shared, copy};
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The access that the mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
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

/// Addresses that a region has left, see [`Region::vacate`].
#[derive(Debug)]
pub struct Vacancy {
    base: NonNull<u8>,
    size: usize,
}

impl Vacancy {
    /// Size of the addresses.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

// SAFETY: only addresses, which no code dereferences.
unsafe impl Send for Vacancy {}

// SAFETY: the region is only accessed through atomics and raw copies, from any thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// An empty memfd that takes seals and, where the kernel knows the flag, can not be executed.
fn memfd(name: &CStr) -> Result<i32, ShmError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for flags in [flags | libc::MFD_NOEXEC_SEAL, flags] {
        // SAFETY: plain system call with a valid string.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if descriptor >= 0 {
            return Ok(descriptor);
        }
        if errno() != libc::EINVAL {
            break;
        }
    }
    Err(ShmError::System(errno()))
}

fn seal(descriptor: i32, seals: libc::c_int) -> Result<(), ShmError> {
    // SAFETY: plain system call.
    if unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(ShmError::System(errno()));
    }
    Ok(())
}

/// Bytes of addresses that regions of this process have mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of addresses that regions of this process have mapped, vacant ones included.
#[must_use]
pub fn mapped() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

impl Region {
    /// Makes a memfd of `size` bytes, sealed against any change of size, and maps it. The
    /// descriptor has close-on-exec and belongs to the caller.
    ///
    /// # Errors
    /// The errno of the failed call.
    pub fn create(name: &CStr, size: usize) -> Result<(i32, Self), ShmError> {
        Self::create_sealed(name, size, libc::F_SEAL_SEAL)
    }

    /// As [`Region::create`], but the returned mapping is the only writable one there can ever be: a process that gets
    /// the descriptor can only read.
    ///
    /// # Errors
    /// The errno of the failed call; `EINVAL` where the kernel is older than Linux 5.1.
    pub fn create_published(name: &CStr, size: usize) -> Result<(i32, Self), ShmError> {
        Self::create_sealed(name, size, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)
    }

    fn create_sealed(
        name: &CStr,
        size: usize,
        last_seals: libc::c_int,
    ) -> Result<(i32, Self), ShmError> {
        let descriptor = memfd(name)?;
        let sealed = || {
            let length = i64::try_from(size).map_err(|_| ShmError::System(libc::EFBIG))?;
            // SAFETY: plain system call on our own descriptor.
            if unsafe { libc::ftruncate(descriptor, length) } < 0 {
                return Err(ShmError::System(errno()));
            }
            seal(descriptor, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
            let region = Self::map(descriptor, size, Access::ReadWrite)?;
            seal(descriptor, last_seals)?;
            Ok(region)
        };
        match sealed() {
            Ok(region) => Ok((descriptor, region)),
            Err(error) => {
                // SAFETY: the descriptor is owned here and not used again.
                unsafe { libc::close(descriptor) };
                Err(error)
            }
        }
    }

    /// Maps `size` bytes of a memfd that another process made, once [`Outside`] admits it. The descriptor stays the
    /// caller's and may be closed.
    ///
    /// # Errors
    /// Those of [`Outside::admit`], and the errno of the kernel.
    pub fn map(descriptor: i32, size: usize, access: Access) -> Result<Self, ShmError> {
        Outside::admit(descriptor, size)?.map(access)
    }

    /// Maps `size` bytes of a file or device that can not be sealed: memory of a virtual machine. Whoever else has the file can make it
    /// shorter, and then an access raises `SIGBUS`: only for a process that serves nobody but those.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn map_unsealed(descriptor: i32, size: usize) -> Result<Self, ShmError> {
        Self::map_at(
            core::ptr::null_mut(),
            0,
            descriptor,
            size,
            Access::ReadWrite,
        )
    }

    /// As [`Region::map`], at addresses that an earlier region left vacant.
    ///
    /// # Errors
    /// As [`Region::map`]; the addresses then stay vacant for good.
    pub fn map_into(vacancy: Vacancy, descriptor: i32, access: Access) -> Result<Self, ShmError> {
        Outside::admit(descriptor, vacancy.size)?;
        let base = vacancy.base.as_ptr().cast();
        Self::map_at(base, libc::MAP_FIXED, descriptor, vacancy.size, access)
    }

    /// Drops the file while other threads may still access the region: its addresses stay readable and writable, as
    /// zero pages, until [`Region::map_into`] uses them again. So a late access sees zeros instead of faulting. The
    /// pages are shared with children, since private writable memory counts against `RLIMIT_DATA`.
    pub fn vacate(&self) -> Option<Vacancy> {
        let flags = libc::MAP_FIXED | libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = self.base.as_ptr().cast();
        // SAFETY: replaces exactly the region's own mapping, which is only accessed through atomics and raw copies, for
        // which any bytes are valid.
        let replace = |protection| unsafe { libc::mmap(base, self.size, protection, flags, -1, 0) };
        if replace(protection).cast() == self.base.as_ptr() {
            return Some(Vacancy {
                base: self.base,
                size: self.size,
            });
        }
        // With strict accounting there may be no writable memory; the file is dropped all the same.
        replace(libc::PROT_READ);
        None
    }

    /// Takes the place of `former`, which has the same size, at once: an access to `former` sees either its bytes or
    /// these, and no access reaches the file of `former` afterwards.
    ///
    /// # Errors
    /// The errno of the kernel; then `former` is unchanged.
    pub fn take_place_of(self, former: &Self) -> Result<(), ShmError> {
        if self.size != former.size {
            return Err(ShmError::NotSealed);
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, to) = (self.base.as_ptr().cast(), former.base.as_ptr().cast());
        // SAFETY: both ranges are whole mappings of regions, which are only accessed through atomics and raw copies; no
        // other code knows the addresses of this one.
        let moved: *mut libc::c_void =
            unsafe { libc::mremap(from, self.size, self.size, flags, to) };
        if moved != to {
            return Err(ShmError::System(errno()));
        }
        // Its addresses are unused now.
        MAPPED.fetch_sub(self.size, Ordering::Relaxed);
        core::mem::forget(self);
        Ok(())
    }

    pub(crate) fn map_at(
        wanted: *mut libc::c_void,
        flags: i32,
        descriptor: i32,
        size: usize,
        access: Access,
    ) -> Result<Self, ShmError> {
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses, or over vacant addresses.
        let base = unsafe { libc::mmap(wanted, size, protection, flags, descriptor, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().addr() != usize::MAX => {
                if flags & libc::MAP_FIXED == 0 {
                    MAPPED.fetch_add(size, Ordering::Relaxed);
                }
                Ok(Self { base, size })
            }
            _ => Err(ShmError::System(errno())),
        }
    }

    /// Bytes of the region.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The structure at `offset`, or `None` where it would not lie within the region or not be aligned.
    #[inline]
    #[must_use]
    pub fn at<T: Shared>(&self, offset: usize) -> Option<&T> {
        self.slice(offset, 1).and_then(|slice| slice.first())
    }

    /// `count` structures from `offset` on, or `None` where they would not lie within the region or not be aligned.
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

    /// The address of `length` bytes from `offset` on, or `None` where they would not lie within.
    #[inline]
    pub(crate) fn address(&self, offset: usize, length: usize) -> Option<*mut u8> {
        if offset > self.size || self.size - offset < length {
            return None;
        }
        // SAFETY: within the mapping.
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    /// Copies a program's bytes to `offset`. Returns how many could not be copied: all of them where the range does not
    /// lie within the region, otherwise see [`copy::copy`].
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

    /// Releases the pages that lie wholly within a range; they read as zero. Does nothing where the range does not lie
    /// within the region.
    pub fn release_pages(&self, offset: usize, length: usize) {
        if offset > self.size || self.size - offset < length {
            return;
        }
        // The kernel would round the end up, into pages with other contents.
        let page = page_size();
        let end = (offset + length) / page * page;
        let Some(start) = offset.checked_next_multiple_of(page).filter(|at| *at < end) else {
            return;
        };
        // SAFETY: within the mapping; MADV_REMOVE frees the pages of the shared file.
        unsafe {
            libc::madvise(
                self.base.as_ptr().add(start).cast(),
                end - start,
                libc::MADV_REMOVE,
            );
        }
    }
}

fn page_size() -> usize {
    // SAFETY: plain library call.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096).max(1)
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no longer borrowed.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
        MAPPED.fetch_sub(self.size, Ordering::Relaxed);
    }
}

impl Outside {
    /// Maps all of it.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn map(&self, access: Access) -> Result<Region, ShmError> {
        let (descriptor, size) = (self.descriptor(), self.size());
        Region::map_at(core::ptr::null_mut(), 0, descriptor, size, access)
    }
}
