//! Programs that lock themselves in: from then on a call that the library makes, and the program itself would not, may be the end.
//!
//! ```text
//!  prctl, seccomp --> the filter is run on the calls that connections need --> all allowed: nothing changes
//!                                                                         \--> else the process has kernel TCP from before the filter on
//!  setrlimit of no descriptor --> the same: later no pump could be had
//!  a filter at the start      --> a child makes the calls --> it ends well: nothing changes
//!                                                         \--> else the process has kernel TCP
//! ```
//!
//! Connections that there are go on through a pump, made before the filter is there; on them the program's own calls are all that is
//! made.

mod filter;
mod probe;

pub use probe::began_confined;

use core::sync::atomic::{AtomicBool, Ordering};

use netchannel_abi::reason::Reason;

use crate::{attach, limits, listener, sys, user, withdrawal};
use filter::{Call, Filter};

/// As the kernel takes a filter.
#[repr(C)]
#[derive(Clone, Copy)]
struct Described {
    length: u16,
    instructions: *const filter::Instruction,
}

/// Whether the program has set a filter.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// What a program is about to be allowed.
pub enum Ahead {
    /// What this filter allows.
    Filter(*const libc::c_void),
    /// To read, to write and to end.
    Strict,
}

/// A filter is about to be set.
///
/// # Safety
/// The pointer is the program's, and is read as the kernel does.
pub unsafe fn before(ahead: &Ahead) {
    // A child that has its parent's memory, as between vfork and exec, touches nothing of it.
    if attach::current().is_none() || sys::process() != attach::process() {
        return;
    }
    let allows = match *ahead {
        Ahead::Strict => false,
        // SAFETY: the caller's promise.
        Ahead::Filter(at) => match unsafe { read(at.cast()) } {
            Some(filter) => {
                // Any number and place will do: nothing is made of them.
                let mut calls = for_connections(5, 0x7fff_0000_1000).into_iter();
                calls.all(|(number, arguments)| filter.allows(&Call::new(number, arguments)))
            }
            // The kernel refuses it.
            None => true,
        },
    };
    // What a queue needs is no call that connections need.
    listener::leave_queues();
    FILTERED.store(true, Ordering::Relaxed);
    if !allows {
        withdrawal::withdraw(Reason::Confined);
    }
}

/// Whether the program has set a filter, which may forbid what is made for no connection of its own.
pub fn is_filtered() -> bool {
    FILTERED.load(Ordering::Relaxed)
}

/// A limit is about to be set. Who may have no descriptor could not be given a pump when the filter comes that follows, as in sshd. Who may have
/// no process, as haproxy's workers, needs none.
pub fn before_limit(resource: libc::c_int, limit: &libc::rlimit) {
    /// Standard input, output and errors.
    const STANDARD: libc::rlim_t = 3;
    let none = limits::is_of_files(resource) && limit.rlim_max < STANDARD;
    if none && attach::current().is_some() && sys::process() == attach::process() {
        withdrawal::withdraw(Reason::Confined);
    }
}

unsafe fn read(at: *const Described) -> Option<Filter> {
    // SAFETY: the caller's promise.
    unsafe {
        let described = user::read(at).ok()?;
        let mut all = Vec::new();
        for index in 0..usize::from(described.length) {
            all.push(user::read(described.instructions.wrapping_add(index)).ok()?);
        }
        Some(Filter::new(all))
    }
}

/// A call: its number and its arguments.
type Made = (libc::c_long, [usize; 6]);

/// Calls that are made for connections and that a program need not make itself, with arguments of their kind. On no descriptor and no
/// place they do nothing.
fn for_connections(fd: usize, place: usize) -> [Made; 13] {
    /// Of the flags of `mmap`: nothing is mapped here.
    const OTHERS_TOO: usize = 1;
    let flags = |flags| sys::int(flags);
    let memory = flags(libc::PROT_READ | libc::PROT_WRITE);
    [
        (
            libc::SYS_sendto,
            [
                fd,
                place,
                1,
                flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
                0,
                0,
            ],
        ),
        (
            libc::SYS_recvfrom,
            [fd, place, 1, flags(libc::MSG_PEEK), 0, 0],
        ),
        (
            libc::SYS_recvfrom,
            [fd, place, 64, flags(libc::MSG_DONTWAIT), 0, 0],
        ),
        (
            libc::SYS_recvmsg,
            [fd, place, flags(libc::MSG_DONTWAIT), 0, 0, 0],
        ),
        (libc::SYS_ppoll, [place, 2, 0, 0, 8, 0]),
        (libc::SYS_mmap, [0, 4096, memory, OTHERS_TOO, fd, 0]),
        (libc::SYS_munmap, [place, 4096, 0, 0, 0, 0]),
        (libc::SYS_close, [fd, 0, 0, 0, 0, 0]),
        (libc::SYS_dup3, [fd, 6, 0, 0, 0, 0]),
        (
            libc::SYS_fcntl,
            [fd, flags(libc::F_DUPFD_CLOEXEC), 64, 0, 0, 0],
        ),
        (
            libc::SYS_futex,
            [place, flags(libc::FUTEX_WAIT), 0, 0, 0, 0],
        ),
        (libc::SYS_gettid, [0; 6]),
        (libc::SYS_sched_yield, [0; 6]),
    ]
}
