//! Cancellation of threads. The library sleeps in the cancellation points of the C library; when
//! the thread is cancelled there, what the sleep had announced is taken back.
//!
//! Unwinding walks over the library's own frames: nothing of it is destroyed on the way, since
//! panics abort and no frame has a landing pad. So whoever sleeps must own nothing but what `undo`
//! gives back.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

use crate::ground::real;

static ANY: AtomicBool = AtomicBool::new(false);

/// A thread of this process is about to be cancelled.
pub fn begins() {
    ANY.store(true, Ordering::Release);
}

/// A cancellation point for calls that need not sleep.
#[inline]
pub fn point() {
    if ANY.load(Ordering::Relaxed) {
        // SAFETY: no arguments; the thread owns nothing of ours here.
        unsafe { real::pthread_testcancel() };
    }
}

/// As [`guarded`], where it does no harm that `undo` does not run for the first thread ever that is
/// cancelled.
#[inline]
pub fn guarded_lightly<R>(undo: impl FnMut(), sleep: impl FnOnce() -> R) -> R {
    if ANY.load(Ordering::Relaxed) {
        guarded(undo, sleep)
    } else {
        sleep()
    }
}

/// Runs `sleep`; `undo` runs if the thread is cancelled in it.
pub fn guarded<R>(mut undo: impl FnMut(), sleep: impl FnOnce() -> R) -> R {
    let mut buffer = MaybeUninit::<real::CleanUp>::uninit();
    // SAFETY: the buffer and the closure live until the routine is popped, or has run on this very
    // stack.
    unsafe {
        let argument = (&raw mut undo).cast();
        real::_pthread_cleanup_push(buffer.as_mut_ptr(), routine_of(&undo), argument);
        let result = sleep();
        real::_pthread_cleanup_pop(buffer.as_mut_ptr(), 0 as c_int);
        result
    }
}

/// The C routine that calls a closure of this type.
fn routine_of<F: FnMut()>(_: &F) -> unsafe extern "C" fn(*mut c_void) {
    unsafe extern "C" fn run<F: FnMut()>(argument: *mut c_void) {
        // SAFETY: `guarded` passes a pointer to its closure.
        unsafe { (*argument.cast::<F>())() }
    }
    run::<F>
}
