//! What a fork must find whole. The kernel copies the descriptors first and the memory after them,
//! while other threads go on: without this a child could know a socket whose descriptor it does not
//! have, and let go of its parent's when the kernel gives the number to a socket of its own.
//!
//! So whoever changes which descriptors name a socket, or counts them, is inside meanwhile; a fork
//! waits until nobody is, and nobody comes in until there is a child.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::{clock, lock, sys};

/// Threads inside.
#[unsafe(link_section = ".data.netchannel_start")]
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// The thread that forks, or 0.
#[unsafe(link_section = ".data.netchannel_start")]
static FORKER: AtomicU32 = AtomicU32::new(0);

/// A thread inside that does not come out (a signal handler jumped out of it, or a debugger holds
/// it) does not keep others from forking for longer.
const PATIENCE: u64 = 200_000_000;

thread_local! {
    /// How often the thread is inside: a signal handler may come in once more.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How many forks of the thread are under way: a signal handler may fork in the midst of one.
    static FORKS: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread is inside.
pub struct Inside(());

/// Comes in. Only for short: nobody sleeps inside, or waits for another process.
pub fn enter() -> Inside {
    if DEPTH.get() == 0 {
        while !come_in() {
            sys::yield_now();
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

fn come_in() -> bool {
    // SeqCst: pairs with `before_fork`. Either the forker sees this thread, or this one the forker.
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
            // Release: pairs with the load in `before_fork`, what was changed is whole.
            INSIDE.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Before a fork: waits for those inside, but not for the calling thread itself.
pub fn before_fork() {
    FORKS.set(FORKS.get() + 1);
    if !lock::acquire(&FORKER) {
        return;
    }
    // Pairs with `come_in`.
    core::sync::atomic::fence(Ordering::SeqCst);
    let until = clock::nanoseconds().saturating_add(PATIENCE);
    while INSIDE.load(Ordering::SeqCst) > own() && clock::nanoseconds() < until {
        sys::yield_now();
    }
}

fn own() -> u32 {
    u32::from(DEPTH.get() > 0)
}

fn is_last_fork() -> bool {
    FORKS.set(FORKS.get().saturating_sub(1));
    FORKS.get() == 0
}

/// After it, in the parent.
pub fn in_parent() {
    if is_last_fork() {
        lock::release(&FORKER);
    }
}

/// After it, in the child, where no other thread is inside.
pub fn in_child() {
    INSIDE.store(own(), Ordering::Relaxed);
    FORKS.set(0);
    lock::release(&FORKER);
}
