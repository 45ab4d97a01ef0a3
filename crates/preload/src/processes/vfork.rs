//! Children of `vfork`: they run in their parent's memory, with descriptors, limits and handlers of their own, until
//! they execute a program or end; the thread that made them sleeps meanwhile. Most shells and compilers start programs
//! in this way.
//!
//! A process that never had a socket of the library gets such a child from the kernel. The library's state in memory is
//! then the parent's, and the child's changes to its own descriptors, limits and handlers must not be noted there. Any
//! other process gets an ordinary child.

use core::cell::Cell;
use core::ptr::null_mut;

use libc::{c_char, c_int, pid_t};

use crate::descriptors::{attach, faults, limits, table};
use crate::ground::{process, real};
use crate::processes::exec_preparation::ExecPreparation;

thread_local! {
    /// The preparation of a child that executed a program, left in its parent's memory.
    static PREPARATION: Cell<*mut ExecPreparation> = const { Cell::new(null_mut()) };
}

/// Called before such a child is made. False where there must be none.
pub unsafe extern "C" fn before() -> bool {
    if attach::current().is_some() || table::is_made() || process::is_vfork_child() {
        return false;
    }
    // The child reads the arguments of its exec; its handlers for faults are its own, the noted state of them is not.
    faults::ensure();
    // The child gets the present limits. The lock is the thread's, in the child too.
    limits::before_fork();
    process::lend_memory();
    true
}

/// Called afterwards, in the child and then in the parent: returns the result of `vfork`.
pub unsafe extern "C" fn after(made: c_int) -> pid_t {
    // The child may have been killed before it came here.
    if made == 0 || limits::is_forking() {
        limits::after_fork();
    }
    if made == 0 {
        return 0;
    }
    process::reclaim_memory();
    drop(take_preparation());
    if made < 0 { real::fail(-made) } else { made }
}

/// Keeps the preparation of an exec where the parent finds it, in whose memory the child may run.
pub fn keep_preparation(preparation: ExecPreparation) -> *const *const c_char {
    let environment = preparation.environment.pointer();
    PREPARATION.set(Box::into_raw(Box::new(preparation)));
    environment
}

/// Takes the kept preparation: the program did not begin, or the parent runs again.
pub fn take_preparation() -> Option<ExecPreparation> {
    let left = PREPARATION.replace(null_mut());
    // SAFETY: null, or the box that `keep_preparation` made, which no other code has.
    (!left.is_null()).then(|| unsafe { *Box::from_raw(left) })
}
