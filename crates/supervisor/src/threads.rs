//! What is looked at in a thread that waits for an answer: its descriptors and its memory. Nothing of it is believed: an address is
//! never followed here but given to the kernel, and lengths are bounded.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::system::{self, Sys, errno};

/// Threads that are remembered. Beyond that all are forgotten, and found again.
const MOST: usize = 1024;

/// Threads by their number, as descriptors.
#[derive(Debug, Default)]
pub struct Threads {
    known: HashMap<u32, OwnedFd>,
    /// Before Linux 6.9 a descriptor stands for a process, which does not tell when a thread's number is given again.
    without_threads: bool,
}

impl Threads {
    /// A duplicate of a descriptor of the thread.
    ///
    /// # Errors
    /// `EBADF` where it has none of that number, otherwise that of the kernel.
    pub fn descriptor(&mut self, thread: u32, number: c_int) -> Sys<OwnedFd> {
        if let Some(known) = self.known.get(&thread) {
            match duplicate(known, number) {
                Err(libc::ESRCH) => {
                    self.known.remove(&thread);
                }
                answer => return answer,
            }
        }
        let opened = self.open(thread)?;
        let answer = duplicate(&opened, number);
        if !self.without_threads {
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(thread, opened);
        }
        answer
    }

    /// A duplicate of the descriptor with this inode, of whichever thread that is known. `hint` is who had it, under which number.
    pub fn search(&mut self, inode: u64, hint: (u32, c_int)) -> Option<OwnedFd> {
        let is_it = |fd: &OwnedFd| system::inode(fd.as_fd()) == Ok(inode);
        let hinted = self.descriptor(hint.0, hint.1).ok();
        if let Some(found) = hinted.filter(|fd| is_it(fd)) {
            return Some(found);
        }
        let wanted = format!("socket:[{inode}]");
        let named = |thread: &u32| {
            let entries = fs::read_dir(format!("/proc/{thread}/fd")).ok()?;
            let mut entries = entries.filter_map(Result::ok);
            let found = entries.find(|entry| {
                fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str())
            })?;
            found.file_name().to_str()?.parse::<c_int>().ok()
        };
        let mut known = self.known.iter();
        known.find_map(|(thread, opened)| {
            let found = duplicate(opened, named(thread)?).ok();
            found.filter(|fd| is_it(fd))
        })
    }

    fn open(&mut self, thread: u32) -> Sys<OwnedFd> {
        if !self.without_threads {
            match open(thread, libc::PIDFD_THREAD) {
                Err(libc::EINVAL) => self.without_threads = true,
                answer => return answer,
            }
        }
        open(leader(thread).ok_or(libc::ESRCH)?, 0)
    }
}

fn open(process: u32, flags: u32) -> Sys<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process, flags) })
}

fn duplicate(process: &OwnedFd, number: c_int) -> Sys<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

fn owned(result: libc::c_long) -> Sys<OwnedFd> {
    match c_int::try_from(result) {
        // SAFETY: the kernel made it for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(errno()),
    }
}

/// The process of a thread.
fn leader(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// Memory of the thread: a place and the bytes to or from it, by the kernel.
fn transfer(thread: u32, at: u64, own: libc::iovec, writes: bool) -> Sys<()> {
    let Ok(place) = usize::try_from(at) else {
        return Err(libc::EFAULT);
    };
    if own.iov_len == 0 {
        return Ok(());
    }
    let other = libc::iovec {
        iov_base: std::ptr::without_provenance_mut::<c_void>(place),
        iov_len: own.iov_len,
    };
    let thread = libc::pid_t::try_from(thread).map_err(|_| libc::ESRCH)?;
    // SAFETY: our part is as long as it says, and the other is the kernel's to check.
    let moved = unsafe {
        if writes {
            libc::process_vm_writev(thread, &raw const own, 1, &raw const other, 1, 0)
        } else {
            libc::process_vm_readv(thread, &raw const own, 1, &raw const other, 1, 0)
        }
    };
    match usize::try_from(moved) {
        Ok(moved) if moved == own.iov_len => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(_) => Err(errno()),
    }
}

/// Reads `length` bytes at an address of the thread.
///
/// # Errors
/// `EFAULT` for an address that it has not.
pub fn read(thread: u32, at: u64, length: usize) -> Sys<Vec<u8>> {
    let mut bytes = vec![0_u8; length];
    let own = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    transfer(thread, at, own, false)?;
    Ok(bytes)
}

/// Writes at an address of the thread.
///
/// # Errors
/// `EFAULT` for an address that it has not.
pub fn write(thread: u32, at: u64, bytes: &[u8]) -> Sys<()> {
    let own = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    transfer(thread, at, own, true)
}

/// Reads an int at an address of the thread.
///
/// # Errors
/// `EFAULT` for an address that it has not.
pub fn read_int(thread: u32, at: u64) -> Sys<c_int> {
    let bytes = read(thread, at, size_of::<c_int>())?;
    let bytes = bytes.try_into().map_err(|_| libc::EFAULT)?;
    Ok(c_int::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_written_or_is_none() {
        let own = std::process::id();
        let text = *b"abcd";
        let at = text.as_ptr().addr() as u64;
        assert_eq!(read(own, at, 4).unwrap(), b"abcd");
        for place in [0, 8, u64::MAX, 1 << 63] {
            assert_eq!(read(own, place, 4), Err(libc::EFAULT), "{place:x}");
            assert_eq!(write(own, place, b"x"), Err(libc::EFAULT), "{place:x}");
        }
        let mut number: c_int = 3;
        let at = (&raw mut number).addr() as u64;
        write(own, at, &7_i32.to_ne_bytes()).unwrap();
        assert_eq!(read_int(own, at), Ok(7));
    }

    #[test]
    fn descriptors_of_a_thread_are_duplicated() {
        let mut threads = Threads::default();
        let own = std::process::id();
        assert!(threads.descriptor(own, 0).is_ok());
        assert_eq!(threads.descriptor(own, -1).unwrap_err(), libc::EBADF);
        assert_eq!(threads.descriptor(own, 1 << 28).unwrap_err(), libc::EBADF);
    }
}
