//! Memory received from another process: the only way in. Admitted files stay mappable memory forever, so no access
//! within them raises `SIGBUS`, whichever process made them and whatever it does with them.
//!
//! | demand | else |
//! |---|---|
//! | it lies in tmpfs, whose pages the kernel makes when they are touched | huge pages of hugetlbfs, files on a disk and what FUSE serves fail when they are touched |
//! | it is sealed against shrinking and growing | a page beyond the end fails |
//! | it has exactly the size that was promised | as above |
//!
//! The block size tells nothing: ordinary memory shows huge blocks where `shmem_enabled` asks for them.

use crate::error::{ShmError, errno};

/// `f_type` of tmpfs, where ordinary memfds lie.
const TMPFS: i64 = 0x0102_1994;
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A descriptor whose file may be mapped. Made by [`Outside::admit`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    descriptor: i32,
    size: usize,
    identity: (u64, u64),
    owner: u32,
}

impl Outside {
    /// Checks a received file, which should have `size` bytes. The descriptor stays the caller's, and must stay open as
    /// long as the result is used.
    ///
    /// # Errors
    /// [`ShmError::NotMemory`] or [`ShmError::NotSealed`].
    pub fn admit(descriptor: i32, size: usize) -> Result<Self, ShmError> {
        // SAFETY: all zero is a valid statfs and a valid stat.
        let (mut place, mut stat) = unsafe { core::mem::zeroed::<(libc::statfs, libc::stat)>() };
        // SAFETY: both are locals.
        let known = unsafe {
            libc::fstatfs(descriptor, &raw mut place) == 0
                && libc::fstat(descriptor, &raw mut stat) == 0
        };
        if !known || place.f_type != TMPFS || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(ShmError::NotMemory);
        }
        // SAFETY: plain system call.
        let seals = unsafe { libc::fcntl(descriptor, libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS || i64::try_from(size) != Ok(stat.st_size) {
            return Err(ShmError::NotSealed);
        }
        Ok(Self {
            descriptor,
            size,
            identity: (stat.st_dev, stat.st_ino),
            owner: stat.st_uid,
        })
    }

    /// Device and inode: equal for two descriptors of the same file.
    #[must_use]
    pub const fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The user that made the file, by the numbers of this user namespace.
    #[must_use]
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The admitted descriptor.
    pub(crate) const fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Copies bytes from `offset` on into private memory. A hole reads as zeros and stays a hole, unlike in a mapping,
    /// where a read makes a page at the reader's expense. Returns how many bytes there were.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<usize, ShmError> {
        let at = i64::try_from(offset).map_err(|_| ShmError::System(libc::EINVAL))?;
        // SAFETY: the buffer is the caller's, with that length.
        let read =
            unsafe { libc::pread(self.descriptor, into.as_mut_ptr().cast(), into.len(), at) };
        usize::try_from(read).map_err(|_| ShmError::System(errno()))
    }

    /// The first offset at or behind `offset` that has memory, `None` where only a hole follows.
    #[must_use]
    pub fn next_data(&self, offset: usize) -> Option<usize> {
        let at = i64::try_from(offset).ok()?;
        // SAFETY: plain system call. No other code uses the position of the file.
        let found = unsafe { libc::lseek(self.descriptor, at, libc::SEEK_DATA) };
        usize::try_from(found).ok()
    }
}
