//! Memory that somebody else sent: the one way in. What is admitted stays mapped memory for ever, so that no access within it raises
//! `SIGBUS`, whoever made it and whatever he does with it.
//!
//! | demand | else |
//! |---|---|
//! | it lies in tmpfs, whose pages the kernel makes when they are touched | huge pages of hugetlbfs, files on a disk and what FUSE serves fail when they are touched |
//! | it is sealed against shrinking and growing | a page beyond the end fails |
//! | it has exactly the size that was promised | as above |
//!
//! The size of its blocks says nothing: ordinary memory shows huge ones where `shmem_enabled` asks for them.

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
    /// Looks at a file that somebody sent, which should have `size` bytes. The descriptor stays the caller's, who keeps it open as
    /// long as he uses the answer.
    ///
    /// # Errors
    /// [`ShmError::NotMemory`] or [`ShmError::NotSealed`].
    pub fn admit(descriptor: i32, size: usize) -> Result<Self, ShmError> {
        // SAFETY: all zero is a valid statfs and a valid stat.
        let (mut place, mut stat) = unsafe { core::mem::zeroed::<(libc::statfs, libc::stat)>() };
        // SAFETY: both are ours to write.
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

    /// Device and inode: two descriptors with the same are of one file.
    #[must_use]
    pub const fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The user who made the file, by the numbers of this user namespace.
    #[must_use]
    pub const fn owner(&self) -> u32 {
        self.owner
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The descriptor that was looked at.
    pub(crate) const fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Copies bytes from `offset` on into memory of one's own. A hole reads as zeros and stays a hole: unlike a mapping, which makes
    /// a page of whatever is read, at the expense of who reads. Returns how many bytes there were.
    ///
    /// # Errors
    /// The errno of the kernel.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<usize, ShmError> {
        let at = i64::try_from(offset).map_err(|_| ShmError::System(libc::EINVAL))?;
        // SAFETY: the buffer is ours, and as long as is said.
        let read =
            unsafe { libc::pread(self.descriptor, into.as_mut_ptr().cast(), into.len(), at) };
        usize::try_from(read).map_err(|_| ShmError::System(errno()))
    }

    /// The first place at `offset` or behind it where there is memory, `None` where only a hole follows.
    #[must_use]
    pub fn next_data(&self, offset: usize) -> Option<usize> {
        let at = i64::try_from(offset).ok()?;
        // SAFETY: plain system call. The position of the file is used by nobody.
        let found = unsafe { libc::lseek(self.descriptor, at, libc::SEEK_DATA) };
        usize::try_from(found).ok()
    }
}
