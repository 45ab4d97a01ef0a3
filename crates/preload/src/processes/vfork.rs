//! Children of `vfork`: they run in their parent's memory, with descriptors, limits and handlers of their own, until they execute a
//! program or end; the thread that made them sleeps meanwhile. So most shells and compilers start programs.
//!
//! A process that never had anything to do with a socket of ours gets such a child from the kernel. What is known in memory is its
//! parent's then, and what the child does with its own descriptors, limits and handlers must not be noted there. Any other process gets
//! an ordinary child.

use core::cell::Cell;
use core::ptr::null_mut;

use libc::{c_char, c_int, pid_t};

use crate::descriptors::{attach, faults, limits, table};
use crate::ground::{process, real};
use crate::processes::exec_preparation::ExecPreparation;

thread_local! {
    /// What the child that executed a program left in its parent's memory.
    static LEFT: Cell<*mut ExecPreparation> = const { Cell::new(null_mut()) };
}

/// Before such a child is made. False where there must be none.
pub unsafe extern "C" fn before() -> bool {
    if attach::current().is_some() || table::is_made() || process::is_vfork_child() {
        return false;
    }
    // The child reads what it is given to execute; the handlers for that are its own, the knowledge of them is not.
    faults::ensure();
    // The child's limits are those of this moment. The lock is the thread's, in the child too.
    limits::before_fork();
    process::lend_memory();
    true
}

/// After it, in the child and then in the parent: what `vfork` returns.
pub unsafe extern "C" fn after(made: c_int) -> pid_t {
    // The child may have been killed before it came here.
    if made == 0 || limits::is_forking() {
        limits::after_fork();
    }
    if made == 0 {
        return 0;
    }
    process::reclaim_memory();
    drop(take_back());
    if made < 0 { real::fail(-made) } else { made }
}

/// Keeps what a program is executed with where its parent finds it, whose memory it may be.
pub fn keep(preparation: ExecPreparation) -> *const *const c_char {
    let environment = preparation.environment.pointer();
    LEFT.set(Box::into_raw(Box::new(preparation)));
    environment
}

/// What was kept: the program did not begin.
pub fn take_back() -> Option<ExecPreparation> {
    let left = LEFT.replace(null_mut());
    // SAFETY: null, or the box that `keep` made, which nobody else has.
    (!left.is_null()).then(|| unsafe { *Box::from_raw(left) })
}
