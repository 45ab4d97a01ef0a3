//! Cancellation of threads. The library sleeps in the cancellation points of the C library. When a thread is cancelled
//! there, the announcements that it made before it slept are withdrawn.
//!
//! Unwinding passes over the library's frames without destroying anything, since panics abort and no frame has a
//! landing pad. So a sleeping thread must own nothing but what `undo` gives back.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

use crate::ground::real;

static ANY_CANCELLED: AtomicBool = AtomicBool::new(false);

/// Notes that a thread of this process is about to be cancelled.
pub fn note_cancellation() {
    ANY_CANCELLED.store(true, Ordering::Release);
}

/// A cancellation point for calls that do not sleep.
#[inline]
pub fn point() {
    if ANY_CANCELLED.load(Ordering::Relaxed) {
        // SAFETY: no arguments; the thread owns nothing of the library here.
        unsafe { real::pthread_testcancel() };
    }
}

/// As [`guarded`], for calls where it is harmless that `undo` does not run for the first thread that is ever cancelled.
#[inline]
pub fn guarded_lightly<R>(undo: impl FnMut(), sleep: impl FnOnce() -> R) -> R {
    if ANY_CANCELLED.load(Ordering::Relaxed) {
        guarded(undo, sleep)
    } else {
        sleep()
    }
}

/// Runs `sleep`. `undo` runs if the thread is cancelled meanwhile.
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
