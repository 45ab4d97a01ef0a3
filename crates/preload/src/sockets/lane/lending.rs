//! A connection that a pump serves for one process while others have it, too. What the pump has given to its program stays in the ring
//! until it was read; and before another process reads or writes, the pump catches up with what its program has read and written.

use core::sync::atomic::Ordering;

use netchannel_abi::program::SocketEntry;

use super::manner::{Manner, Marks};
use super::{Lane, Stop};
use crate::ground::{clock, sys};
use crate::sockets::socket::{Socket, status};

/// Bytes that were lent, and where they lie.
#[derive(Clone, Copy)]
pub struct Lent {
    start: u64,
    /// How many.
    pub count: usize,
}

/// Nanoseconds after which it is looked at whether a pump is stopped, or has ended: one that only has no processor is waited for.
const PATIENCE: u64 = 50_000_000;
/// Nanoseconds for which any is waited for: another process may have its number by now.
const LONGEST: u64 = 10_000_000_000;
/// Nanoseconds between two words to it: the first may have come while it was about to sleep.
const PAUSE: i64 = 100_000;

/// The number of a pump, by which others wake it.
pub fn begin_pumping(socket: &Socket) {
    // Release: pairs with the acquire in `meet_pump`.
    socket.entry.pump.store(sys::process(), Ordering::Release);
}

/// A pump is about to be made, or serves no longer.
pub fn expect_pump(socket: &Socket, expected: bool) {
    if expected {
        socket.entry.pump.store(0, Ordering::Relaxed);
        socket.entry.waits_for_pump.store(0, Ordering::Relaxed);
        socket.entry.caught_up.store(0, Ordering::Relaxed);
        socket.mark(status::PUMPED);
    } else {
        socket.unmark(status::PUMPED);
    }
}

/// Says that all was done that others may wait for: `seen` is what [`waiting`] said before.
pub fn caught_up(entry: &SocketEntry, seen: u32) {
    if seen != 0 {
        // Release: pairs with the acquire in `meet_pump`.
        entry.caught_up.store(seen, Ordering::Release);
    }
}

/// The last of those who wait for the pump.
pub fn waiting(entry: &SocketEntry) -> u32 {
    // Acquire: pairs with the release in `meet_pump`: what the program of the pump did before is seen by the calls that follow.
    entry.waits_for_pump.load(Ordering::Acquire)
}

impl Lane {
    /// Before this process reads or writes what a pump serves for another one.
    #[cold]
    #[inline(never)]
    pub fn meet_pump(&self) {
        let entry = self.socket.entry;
        if entry.pump.load(Ordering::Acquire) == sys::process() {
            return;
        }
        let mine = entry
            .waits_for_pump
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1);
        let begun = clock::nanoseconds();
        while self.socket.has(status::PUMPED)
            && entry
                .caught_up
                .load(Ordering::Acquire)
                .wrapping_sub(mine)
                .cast_signed()
                < 0
        {
            let pump = entry.pump.load(Ordering::Acquire);
            if pump != 0 && !wake(pump) {
                expect_pump(&self.socket, false);
            }
            let waited = clock::nanoseconds().wrapping_sub(begun);
            if waited > PATIENCE && (waited > LONGEST || !runs(pump)) {
                break;
            }
            sys::sleep(PAUSE);
        }
    }

    /// Copies bytes that stay where they are.
    ///
    /// # Errors
    /// As `receive`.
    pub fn lend(&self, buffer: &mut [u8]) -> Result<Lent, Stop> {
        let manner = Manner {
            peek: true,
            ..Manner::default()
        };
        let (to, length) = (buffer.as_mut_ptr(), buffer.len());
        self.while_receiving(|| {
            let start = self.socket.entry.receive.own.load(Ordering::Relaxed);
            // SAFETY: a buffer of ours.
            let count = unsafe { self.receive_by_marks(to, length, manner, 0, Marks::Unexpected) }?;
            Ok(Lent { start, count })
        })
    }

    /// Takes what was lent and has been read. What others have read meanwhile is not taken again.
    pub fn end_loan(&self, lent: &Lent) {
        let manner = Manner {
            discard: true,
            ..Manner::default()
        };
        let _ = self.while_receiving(|| {
            let mut left = lent.count;
            let untouched = self.socket.entry.receive.own.load(Ordering::Relaxed) == lent.start;
            while untouched && left > 0 {
                let nowhere = core::ptr::null_mut();
                // SAFETY: nothing is copied.
                let passed =
                    unsafe { self.receive_by_marks(nowhere, left, manner, 0, Marks::Unexpected) }?;
                if passed == 0 {
                    break;
                }
                left = left.saturating_sub(passed);
            }
            Ok(())
        });
    }
}

/// Whether a pump goes on as soon as it has a processor: it has not ended, and nobody has stopped it.
fn runs(pump: u32) -> bool {
    let described = std::fs::read_to_string(format!("/proc/{pump}/stat"));
    let described = described.unwrap_or_default();
    // The state follows the name, which may contain anything.
    let state = described
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X' | 'T' | 't'))
}

/// Interrupts a pump that sleeps. False where there is none. The signal does nothing to who has taken its number since.
fn wake(pump: u32) -> bool {
    let words = [pump as usize, sys::int(libc::SIGCONT), 0, 0, 0, 0];
    // SAFETY: no pointers.
    let told = unsafe { sys::raw(libc::SYS_kill, words) };
    told != Err(libc::ESRCH)
}
