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

use netchannel_abi::reason::Reason;

use crate::descriptors::confinement::{self, Filter, Instruction};
use crate::descriptors::{attach, limits, user};
use crate::ground::{process, sys};
use crate::sockets::{exclusion, listener};

/// As the kernel takes a filter.
#[repr(C)]
#[derive(Clone, Copy)]
struct Described {
    length: u16,
    instructions: *const Instruction,
}

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
    if attach::current().is_none() || sys::process() != process::number() {
        return;
    }
    let allows = match *ahead {
        Ahead::Strict => false,
        // SAFETY: the caller's promise.
        Ahead::Filter(at) => match unsafe { read(at.cast()) } {
            Some(filter) => confinement::allows(&filter),
            // The kernel refuses it.
            None => true,
        },
    };
    // What a queue needs is no call that connections need.
    listener::leave_queues();
    confinement::note_filter();
    if !allows {
        exclusion::withdraw(Reason::Confined);
    }
}

/// A limit is about to be set. Who may have no descriptor could not be given a pump when the filter comes that follows, as in sshd. Who may have
/// no process, as haproxy's workers, needs none.
pub fn before_limit(resource: libc::c_int, limit: &libc::rlimit) {
    /// Standard input, output and errors.
    const STANDARD: libc::rlim_t = 3;
    let none = limits::is_nofile(resource) && limit.rlim_max < STANDARD;
    if none && attach::current().is_some() && sys::process() == process::number() {
        exclusion::withdraw(Reason::Confined);
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
