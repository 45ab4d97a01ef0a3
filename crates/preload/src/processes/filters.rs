//! Programs that confine themselves: afterwards a call that the library makes, and the program itself would not, may
//! kill the process.
//!
//! ```text
//!  prctl, seccomp --> the filter is run on the calls that connections need --> all allowed: nothing changes
//!                                                                         \--> else the process has kernel TCP, from
//!                                                                              before the filter on
//!  setrlimit of no descriptor --> the same: later no pump could be had
//!  a filter at the start      --> a child makes the calls --> it ends well: nothing changes
//!                                                         \--> else the process has kernel TCP
//! ```
//!
//! Existing connections continue through a pump, made before the filter is set; on their descriptors only the program's
//! own calls are made.

use netchannel_abi::reason::Reason;

use crate::descriptors::confinement::{self, Filter, Instruction};
use crate::descriptors::{attach, limits, user};
use crate::ground::{process, sys};
use crate::sockets::{exclusion, listener};

/// `struct sock_fprog`: the kernel's description of a filter.
#[repr(C)]
#[derive(Clone, Copy)]
struct FilterProgram {
    length: u16,
    instructions: *const Instruction,
}

/// The calls that a program is about to restrict itself to.
pub enum Restriction {
    /// Those that this filter allows.
    Filter(*const libc::c_void),
    /// Reading, writing and exiting.
    Strict,
}

/// Called before a filter is set.
///
/// # Safety
/// The pointer is the program's, and is read as by the kernel.
pub unsafe fn before(restriction: &Restriction) {
    // A child that runs in its parent's memory, as between vfork and exec, must not touch it.
    if attach::current().is_none() || sys::process() != process::number() {
        return;
    }
    let allows = match *restriction {
        Restriction::Strict => false,
        // SAFETY: the caller's promise.
        Restriction::Filter(at) => match unsafe { read(at.cast()) } {
            Some(filter) => confinement::allows(&filter),
            // The kernel refuses it.
            None => true,
        },
    };
    // The calls for queues are not among those that connections need.
    listener::leave_queues();
    confinement::note_filter();
    if !allows {
        exclusion::withdraw(Reason::Confined);
    }
}

/// Called before a limit is set. A process without descriptors could get no pump when a filter follows, as in sshd. A
/// process that may not fork, such as haproxy's workers, needs none.
pub fn before_limit(resource: libc::c_int, limit: &libc::rlimit) {
    /// Standard input, output and error.
    const STANDARD: libc::rlim_t = 3;
    let none = limits::is_nofile(resource) && limit.rlim_max < STANDARD;
    if none && attach::current().is_some() && sys::process() == process::number() {
        exclusion::withdraw(Reason::Confined);
    }
}

unsafe fn read(at: *const FilterProgram) -> Option<Filter> {
    // SAFETY: the caller's promise.
    unsafe {
        let program = user::read(at).ok()?;
        let mut all = Vec::new();
        for index in 0..usize::from(program.length) {
            all.push(user::read(program.instructions.wrapping_add(index)).ok()?);
        }
        Some(Filter::new(all))
    }
}
