//! Locks: a plain one for what is private to the process, and one for a direction of a socket,
//! which lies in memory shared with forked children and outlives a killed holder.
//!
//! Who can write the word of a lock in shared memory can make others wait for it for ever: it need only name a thread that lives. So such
//! words lie in program regions only, never in links, and a region is shared by processes of one user: a child that becomes another user's
//! leaves it ([`crate::processes::users`]), virtual sockets go to equal users only ([`crate::processes::peer_libraries`]), and the daemon takes and gives no region
//! between users. Nobody waits for a word that another user can write.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::{sys, thread};

/// A value that one thread at a time may touch. Held for short, never while sleeping.
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

    /// Waits for the value. `None` when the caller itself holds it: a signal handler interrupted
    /// its own thread.
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

/// Opens the lock `word` in a forked child. One that is open is not written to: each page that a child writes to is copied for it.
pub fn reopen(word: &AtomicU32) {
    if word.load(Ordering::Relaxed) != 0 {
        word.store(0, Ordering::Release);
    }
}

/// Takes the lock `word` for the calling thread. False when it already holds it.
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

/// Whether the calling thread holds the lock: then this is a signal handler that interrupted it.
pub fn is_mine(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == thread::number()
}

/// Gives the lock back.
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
            // A holder that was killed will never give it back.
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
