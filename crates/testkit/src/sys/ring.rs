//! An `io_uring` ring as libuv uses it: set up by number, for changes of epoll sets.

use std::ptr::null_mut;

use libc::{c_int, c_void};

use super::{Descriptor, Outcome, check, last_errno};

const ENTRIES: u32 = 8;
const SUBMISSIONS_AT: libc::off_t = 0x1000_0000;
const EPOLL_CTL: u8 = 29;
const SINGLE_MMAP: u32 = 1;
const GETEVENTS: c_int = 1;
/// Offsets in words of the parameters: features, the submission ring's offsets, the completion ring's.
const FEATURES: usize = 5;
const TAIL: usize = 11;
const MASK: usize = 12;
const ARRAY: usize = 16;
const COMPLETED_HEAD: usize = 20;
const COMPLETED_MASK: usize = 22;
const COMPLETIONS: usize = 25;

/// A submission entry, 64 bytes.
#[repr(C)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    more: u32,
    data: [u64; 4],
}

#[repr(C)]
struct Completion {
    data: u64,
    result: i32,
    flags: u32,
}

/// A mapped `io_uring` ring.
pub struct Ring {
    fd: Descriptor,
    parameters: [u32; 30],
    rings: *mut u8,
    submissions: *mut Submission,
}

/// Sets up a ring, where the system has `io_uring`.
pub fn ring() -> Outcome<Ring> {
    let mut parameters = [0u32; 30];
    // SAFETY: the parameters have room for what the call writes.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, parameters.as_mut_ptr()) };
    let fd = check(c_int::try_from(made).unwrap_or(-1))?;
    assert_ne!(parameters[FEATURES] & SINGLE_MMAP, 0, "an old kernel");
    let map = |length: usize, offset| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(null_mut(), length, protection, kind, fd, offset) };
        if at == libc::MAP_FAILED {
            Err(last_errno())
        } else {
            Ok(at)
        }
    };
    let rings: *mut c_void = map(4096, 0)?;
    let submissions = map(4096, SUBMISSIONS_AT)?;
    Ok(Ring {
        fd,
        parameters,
        rings: rings.cast(),
        submissions: submissions.cast(),
    })
}

impl Ring {
    /// A word of the rings, at the offset that a parameter holds.
    fn word(&self, parameter: usize) -> *mut u32 {
        // SAFETY: the kernel gave the offset, within the page for so few entries.
        unsafe { self.rings.add(self.parameters[parameter] as usize).cast() }
    }

    /// `EPOLL_CTL_ADD` through the ring, one entry at a time
    pub fn epoll_add(&self, set: Descriptor, member: Descriptor, events: u32) -> Outcome<()> {
        let data = u64::try_from(member).unwrap_or(0);
        let event = libc::epoll_event { events, u64: data };
        // SAFETY: one submission is under way at a time, and the event outlives it.
        let result = unsafe {
            let tail = self.word(TAIL).read();
            let place = tail & self.word(MASK).read();
            self.submissions.add(place as usize).write(Submission {
                operation: EPOLL_CTL,
                flags: 0,
                priority: 0,
                fd: set,
                offset: data,
                address: (&raw const event).addr() as u64,
                length: libc::EPOLL_CTL_ADD.cast_unsigned(),
                more: 0,
                data: [0; 4],
            });
            self.word(ARRAY).add(place as usize).write(place);
            self.word(TAIL).write_volatile(tail.wrapping_add(1));
            let entered = libc::syscall(libc::SYS_io_uring_enter, self.fd, 1, 1, GETEVENTS, 0, 0);
            assert_eq!(entered, 1);
            let head = self.word(COMPLETED_HEAD).read();
            let done = head & self.word(COMPLETED_MASK).read();
            let completions: *const Completion = self.word(COMPLETIONS).cast();
            let result = completions.add(done as usize).read_volatile().result;
            self.word(COMPLETED_HEAD)
                .write_volatile(head.wrapping_add(1));
            result
        };
        if result < 0 {
            Err(super::Errno(-result))
        } else {
            Ok(())
        }
    }
}
