//! The kernel's questions: a call that is held back, and how it is answered.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::system::{Sys, errno};

/// Bit of the descriptor's flags (Linux 6.6): whoever is answered goes on at once, on the processor of who answered.
const WAKE_SYNCHRONOUSLY: u64 = 1;

/// A call of a supervised thread, which waits for the answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The kernel's name for it.
    pub id: u64,
    /// The thread.
    pub thread: u32,
    /// Which call.
    pub number: i64,
    /// Its arguments, as the program gave them.
    pub arguments: [u64; 6],
}

impl Call {
    /// An argument that is an int to the kernel, which looks at its lower half.
    #[expect(clippy::cast_possible_truncation, reason = "as the kernel does")]
    #[must_use]
    pub const fn int(&self, argument: usize) -> c_int {
        self.arguments[argument] as u32 as c_int
    }
}

/// Where the kernel asks.
#[derive(Debug)]
pub struct Notify(OwnedFd);

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Notify {
    /// Of the descriptor of a filter.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: no pointers. Kernels that do not know it answer as before.
        unsafe {
            libc::ioctl(
                descriptor.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                WAKE_SYNCHRONOUSLY,
            )
        };
        Self(descriptor)
    }

    /// The next call, which must be known to be there. `None` where it has been given up meanwhile.
    ///
    /// # Errors
    /// The errno.
    pub fn receive(&self) -> Sys<Option<Call>> {
        // SAFETY: a structure of numbers, for which zeros are valid.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes a structure of this type.
        let got = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut asked,
            )
        };
        if got < 0 {
            return match errno() {
                libc::ENOENT | libc::EINTR => Ok(None),
                error => Err(error),
            };
        }
        Ok(Some(Call {
            id: asked.id,
            thread: asked.pid,
            number: asked.data.nr.into(),
            arguments: asked.data.args,
        }))
    }

    /// Whether the thread still waits: what was read of it before is its own.
    #[must_use]
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: the kernel reads the number.
        let valid = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const id,
            )
        };
        valid == 0
    }

    /// The call returns this. Whether anybody still waited.
    pub fn answer(&self, id: u64, result: Sys<i64>) -> bool {
        let (value, error) = match result {
            Ok(value) => (value, 0),
            Err(error) => (0, -error),
        };
        self.send(id, value, error, 0)
    }

    /// The kernel makes the call.
    pub fn let_through(&self, id: u64) -> bool {
        let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
        self.send(id, 0, 0, flags)
    }

    fn send(&self, id: u64, val: i64, error: i32, flags: u32) -> bool {
        let answer = libc::seccomp_notif_resp {
            id,
            val,
            error,
            flags,
        };
        // SAFETY: the kernel reads a structure of this type.
        let sent = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const answer,
            )
        };
        sent == 0
    }

    /// The call returns a new descriptor of the program, a duplicate of `given`, whose number is returned here, too.
    ///
    /// # Errors
    /// `ENOENT` where nobody waits any more, otherwise what the call should return.
    pub fn answer_with(&self, id: u64, given: BorrowedFd<'_>, close_on_exec: bool) -> Sys<c_int> {
        let flags = libc::SECCOMP_ADDFD_FLAG_SEND;
        self.add(id, given, 0, close_on_exec, flags)
    }

    /// The program's descriptor `number` becomes a duplicate of `given`; the call is still to be answered.
    ///
    /// # Errors
    /// As of `answer_with`.
    pub fn replace(&self, id: u64, given: BorrowedFd<'_>, number: c_int, exec: bool) -> Sys<()> {
        let flags = libc::SECCOMP_ADDFD_FLAG_SETFD;
        self.add(id, given, number, exec, flags).map(drop)
    }

    fn add(
        &self,
        id: u64,
        given: BorrowedFd<'_>,
        number: c_int,
        close_on_exec: bool,
        flags: libc::c_ulong,
    ) -> Sys<c_int> {
        let close = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let added = libc::seccomp_notif_addfd {
            id,
            flags: u32::try_from(flags).unwrap_or(0),
            srcfd: given.as_raw_fd().unsigned_abs(),
            newfd: number.unsigned_abs(),
            newfd_flags: close.unsigned_abs(),
        };
        // SAFETY: the kernel reads a structure of this type.
        let made = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ADDFD,
                &raw const added,
            )
        };
        if made < 0 { Err(errno()) } else { Ok(made) }
    }
}
