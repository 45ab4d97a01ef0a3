//! Whether a filter of system calls allows the calls that connections need: a filter that the program sets is
//! interpreted when it is set, and a filter that was there when the program began is tried by a child.

mod filter;
mod probe;

pub use filter::{Filter, Instruction};
pub use probe::began_confined;

use core::sync::atomic::{AtomicBool, Ordering};

use crate::ground::sys;
use filter::Call;

/// Whether the program has set a filter.
static FILTERED: AtomicBool = AtomicBool::new(false);

/// Notes that the program has set a filter.
pub fn note_filter() {
    FILTERED.store(true, Ordering::Relaxed);
}

/// Whether a filter allows all calls that connections need.
pub fn allows(filter: &Filter) -> bool {
    // Any number and address will do: the calls are not made.
    let mut calls = for_connections(5, 0x7fff_0000_1000).into_iter();
    calls.all(|(number, arguments)| filter.allows(&Call::new(number, arguments)))
}

/// Whether the program has set a filter, which may forbid calls that no connection needs.
pub fn is_filtered() -> bool {
    FILTERED.load(Ordering::Relaxed)
}

/// A call: its number and its arguments.
type RawCall = (libc::c_long, [usize; 6]);

/// Calls that connections need and that a program need not make itself, with arguments of their kind. With an invalid
/// descriptor and address they do nothing.
fn for_connections(fd: usize, place: usize) -> [RawCall; 13] {
    /// The flag of `mmap` for shared memory, as a number: nothing is mapped here.
    const SHARED: usize = 1;
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
        (libc::SYS_mmap, [0, 4096, memory, SHARED, fd, 0]),
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
