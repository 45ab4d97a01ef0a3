//! The state that a fork must find consistent. The kernel copies the descriptors first and the memory after them, while
//! other threads go on. Without this gate a child could know a socket whose descriptor it does not have, and release
//! its parent's reference when the kernel gives the number to a socket of its own.
//!
//! So a thread that changes which descriptors name a socket, or counts them, is inside the gate meanwhile. A fork waits
//! until no thread is inside, and no thread enters until the child exists.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::{clock, lock, sys};

/// Threads inside.
#[unsafe(link_section = ".data.netchannel_start")]
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// The thread that forks, or 0.
#[unsafe(link_section = ".data.netchannel_start")]
static FORKER: AtomicU32 = AtomicU32::new(0);

/// Longest time for which a fork waits for threads inside. A thread may never leave: a signal handler jumped out of it,
/// or a debugger holds it.
const LONGEST_WAIT: u64 = 200_000_000;

thread_local! {
    /// How often the thread is inside: a signal handler may enter once more.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Forks of the thread that are under way: a signal handler may fork during a fork.
    static FORKS: Cell<u32> = const { Cell::new(0) };
}

/// Proof that the calling thread is inside the gate.
pub struct Inside(());

/// Enters the gate. A thread stays inside for short only: it neither sleeps nor waits for another process.
pub fn enter() -> Inside {
    if DEPTH.get() == 0 {
        while !try_enter() {
            sys::yield_now();
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

fn try_enter() -> bool {
    // SeqCst: pairs with `before_fork`. Either the forking thread sees this thread, or this thread sees the forking
    // one.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    if FORKER.load(Ordering::SeqCst) == 0 || lock::is_mine(&FORKER) {
        return true;
    }
    INSIDE.fetch_sub(1, Ordering::Release);
    false
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        if DEPTH.get() == 0 {
            // Release: pairs with the load in `before_fork`, which then sees the change as a whole.
            INSIDE.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Before a fork: waits for the other threads inside.
#[unsafe(link_section = ".text.netchannel_start")]
pub fn before_fork() {
    FORKS.set(FORKS.get() + 1);
    if !lock::acquire(&FORKER) {
        return;
    }
    // Pairs with `try_enter`.
    core::sync::atomic::fence(Ordering::SeqCst);
    let until = clock::nanoseconds().saturating_add(LONGEST_WAIT);
    while INSIDE.load(Ordering::SeqCst) > entered_by_this_thread() && clock::nanoseconds() < until {
        sys::yield_now();
    }
}

fn entered_by_this_thread() -> u32 {
    u32::from(DEPTH.get() > 0)
}

fn is_last_fork() -> bool {
    FORKS.set(FORKS.get().saturating_sub(1));
    FORKS.get() == 0
}

/// After a fork, in the parent.
pub fn in_parent() {
    if is_last_fork() {
        lock::release(&FORKER);
    }
}

/// After a fork, in the child, where no other thread is inside.
pub fn in_child() {
    INSIDE.store(entered_by_this_thread(), Ordering::Relaxed);
    FORKS.set(0);
    lock::release(&FORKER);
}
