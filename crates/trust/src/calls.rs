//! Raw system calls: the C library's functions may be the library's own hooks.

use core::ffi::CStr;
use netchannel_shm::system::{Sys, raw};

/// A descriptor that names a file without opening it, closed when dropped.
#[derive(Debug)]
pub struct Named(i32);

/// The attributes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The owner.
    pub owner: u32,
    /// Kind and permissions.
    pub mode: u32,
}

impl Facts {
    /// Whether it is of a kind, `S_IFDIR` and so on.
    pub fn is(&self, kind: libc::mode_t) -> bool {
        self.mode & libc::S_IFMT == kind
    }
}

fn word(value: i32) -> usize {
    isize::try_from(value).unwrap_or(-1).cast_unsigned()
}

impl Named {
    /// Opens a name in a directory, which may be a symbolic link. Without a directory the path is complete.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn find(folder: Option<&Self>, name: &CStr) -> Sys<Self> {
        let folder = folder.map_or(libc::AT_FDCWD, |folder| folder.0);
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let words = [word(folder), name.as_ptr().addr(), word(flags), 0, 0, 0];
        // SAFETY: the name is a C string that lives as long as the call.
        let made = unsafe { raw(libc::SYS_openat, words) }?;
        i32::try_from(made).map(Self).map_err(|_| libc::EBADF)
    }

    /// Reads the attributes.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn facts(&self) -> Sys<Facts> {
        // SAFETY: all zero is a value of it.
        let mut found: libc::stat = unsafe { core::mem::zeroed() };
        let words = [word(self.0), (&raw mut found).addr(), 0, 0, 0, 0];
        // SAFETY: the kernel writes one structure of that size.
        unsafe { raw(libc::SYS_fstat, words) }?;
        Ok(Facts {
            owner: found.st_uid,
            mode: found.st_mode,
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of `readlinkat`, `ENAMETOOLONG` where it does not fit a path.
    pub fn target(&self) -> Sys<Vec<u8>> {
        let mut bytes = vec![0_u8; libc::PATH_MAX.unsigned_abs() as usize];
        let (empty, to) = (c"".as_ptr().addr(), bytes.as_mut_ptr().addr());
        let words = [word(self.0), empty, to, bytes.len(), 0, 0];
        // SAFETY: the kernel writes at most the length of the buffer.
        let length = unsafe { raw(libc::SYS_readlinkat, words) }?;
        if length >= bytes.len() {
            return Err(libc::ENAMETOOLONG);
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        let _ = unsafe { raw(libc::SYS_close, [word(self.0), 0, 0, 0, 0, 0]) };
    }
}

/// The effective user of the calling thread.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    let user = unsafe { raw(libc::SYS_geteuid, [0; 6]) };
    user.ok()
        .and_then(|user| u32::try_from(user).ok())
        .unwrap_or(u32::MAX)
}

/// The credentials of the process that made the other end of a connected `AF_UNIX` socket listen.
///
/// # Errors
/// Those of `getsockopt`.
pub fn peer(socket: i32) -> Sys<libc::ucred> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let words = [
        word(socket),
        word(libc::SOL_SOCKET),
        word(libc::SO_PEERCRED),
        (&raw mut found).addr(),
        (&raw mut length).addr(),
        0,
    ];
    // SAFETY: both are locals of the size that is told.
    unsafe { raw(libc::SYS_getsockopt, words) }?;
    Ok(found)
}

/// The beginning of a kernel file.
pub fn read(path: &CStr, buffer: &mut [u8]) -> Sys<usize> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let words = [
        word(libc::AT_FDCWD),
        path.as_ptr().addr(),
        word(flags),
        0,
        0,
        0,
    ];
    // SAFETY: a C string.
    let made = unsafe { raw(libc::SYS_openat, words) }?;
    let file = Named(i32::try_from(made).map_err(|_| libc::EBADF)?);
    let words = [
        word(file.0),
        buffer.as_mut_ptr().addr(),
        buffer.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most the length of the buffer.
    unsafe { raw(libc::SYS_read, words) }
}
