//! Locks: one for data that is private to the process, and one for a direction of a socket, which lies in memory shared
//! with forked children and survives a killed holder.
//!
//! A process that can write the word of a lock can make others wait forever: it only has to write the number of a
//! living thread. So such words lie in program regions only, never in links, and a region is shared by processes of one
//! user. A child that becomes another user's leaves the region ([`crate::processes::users`]), virtual sockets are
//! passed to equal users only ([`crate::processes::peer_libraries`]), and the daemon passes no region between users. So
//! no thread waits for a word that another user can write.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::{sys, thread};

/// A value that one thread at a time may access. Held for short, never while sleeping.
pub struct Lock<T> {
    holder: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the holder word admits one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Access to a locked value.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// An open lock.
    pub const fn new(value: T) -> Self {
        Self {
            holder: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. `None` when the calling thread itself holds it: a signal handler interrupted that thread.
    pub fn lock(&self) -> Option<Guard<'_, T>> {
        acquire(&self.holder).then_some(Guard { lock: self })
    }

    /// Whether the caller holds the value.
    pub fn is_mine(&self) -> bool {
        is_mine(&self.holder)
    }

    /// Opens the lock in a forked child, where its holder does not exist.
    pub fn reset(&self) {
        reopen(&self.holder);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        release(&self.lock.holder);
    }
}

/// Opens the lock `word` in a forked child. An open lock is not written to: each page that a child writes to is copied.
pub fn reopen(word: &AtomicU32) {
    if word.load(Ordering::Relaxed) != 0 {
        word.store(0, Ordering::Release);
    }
}

/// Takes the lock `word` for the calling thread. False when the thread already holds it.
#[inline]
pub fn acquire(word: &AtomicU32) -> bool {
    let me = thread::number();
    // Acquire: pairs with the release in `release`.
    if word
        .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
    {
        return true;
    }
    contend(word, me)
}

/// Whether the calling thread holds the lock: then the caller is a signal handler that interrupted it.
pub fn is_mine(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == thread::number()
}

/// Releases the lock.
#[inline]
pub fn release(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}

#[cold]
fn contend(word: &AtomicU32, me: u32) -> bool {
    let mut round: u32 = 0;
    loop {
        let holder = word.load(Ordering::Relaxed);
        if holder == me {
            return false;
        }
        if holder == 0 {
            if word
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        } else if round > 64 {
            // A holder that was killed never releases the lock.
            if round.is_multiple_of(1024)
                && !sys::exists(holder)
                && word
                    .compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return true;
            }
            sys::yield_now();
        } else {
            spin_loop();
        }
        round = round.wrapping_add(1);
    }
}
