//! A connection that a pump serves for one process while other processes have it, too. Bytes that the pump gives to its
//! program stay in the ring until the program has read them. Before another process reads or writes, the pump catches
//! up with what its program has read and written.

use core::sync::atomic::Ordering;

use netchannel_abi::program::SocketEntry;

use super::modes::{Marks, ReceiveMode};
use super::{Lane, Stop};
use crate::ground::{clock, sys};
use crate::sockets::socket::{Socket, status};

/// Bytes that were copied without being taken from the ring, and their sequence.
#[derive(Clone, Copy)]
pub struct LentBytes {
    start: u64,
    /// Number of bytes.
    pub count: usize,
}

/// Nanoseconds after which the caller checks whether a pump is stopped or has ended: a pump that only lacks a processor
/// is waited for.
const CHECK_AFTER: u64 = 50_000_000;
/// Longest wait for a pump in nanoseconds: another process may have its number by now.
const LONGEST: u64 = 10_000_000_000;
/// Nanoseconds between two wake-ups of a pump: the first may have come while it was about to sleep.
const PAUSE: i64 = 100_000;

/// Publishes the number of the pump, by which others wake it.
pub fn publish_pump(socket: &Socket) {
    // Release: pairs with the acquire in `wait_for_pump`.
    socket.entry.pump.store(sys::process(), Ordering::Release);
}

/// Notes that a pump is about to be made, or serves no longer.
pub fn set_pumped(socket: &Socket, expected: bool) {
    if expected {
        socket.entry.pump.store(0, Ordering::Relaxed);
        socket.entry.waits_for_pump.store(0, Ordering::Relaxed);
        socket.entry.caught_up.store(0, Ordering::Relaxed);
        socket.mark(status::PUMPED);
    } else {
        socket.unmark(status::PUMPED);
    }
}

/// Publishes that the pump has caught up: `seen` is what [`last_waiter`] returned before.
pub fn publish_caught_up(entry: &SocketEntry, seen: u32) {
    if seen != 0 {
        // Release: pairs with the acquire in `wait_for_pump`.
        entry.caught_up.store(seen, Ordering::Release);
    }
}

/// The number of the last process that waits for the pump.
pub fn last_waiter(entry: &SocketEntry) -> u32 {
    // Acquire: pairs with the release in `wait_for_pump`: the calls that follow see what the program of the pump did
    // before.
    entry.waits_for_pump.load(Ordering::Acquire)
}

impl Lane {
    /// Waits for the pump before this process reads or writes.
    #[cold]
    #[inline(never)]
    pub fn wait_for_pump(&self) {
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
                set_pumped(&self.socket, false);
            }
            let waited = clock::nanoseconds().wrapping_sub(begun);
            if waited > CHECK_AFTER && (waited > LONGEST || !is_running(pump)) {
                break;
            }
            sys::sleep(PAUSE);
        }
    }

    /// Copies bytes and leaves them in the ring.
    ///
    /// # Errors
    /// As `receive`.
    pub fn lend(&self, buffer: &mut [u8]) -> Result<LentBytes, Stop> {
        let mode = ReceiveMode {
            peek: true,
            ..ReceiveMode::default()
        };
        let (to, length) = (buffer.as_mut_ptr(), buffer.len());
        self.while_receiving(|| {
            let start = self.socket.entry.receive.own.load(Ordering::Relaxed);
            // SAFETY: the buffer is a slice of the caller.
            let count = unsafe { self.receive_by_marks(to, length, mode, 0, Marks::Unexpected) }?;
            Ok(LentBytes { start, count })
        })
    }

    /// Takes bytes that were lent and that the program has read, unless another process has read meanwhile.
    pub fn take_lent(&self, lent: &LentBytes) {
        let mode = ReceiveMode {
            discard: true,
            ..ReceiveMode::default()
        };
        let _ = self.while_receiving(|| {
            let mut left = lent.count;
            let untouched = self.socket.entry.receive.own.load(Ordering::Relaxed) == lent.start;
            while untouched && left > 0 {
                let nowhere = core::ptr::null_mut();
                // SAFETY: nothing is copied.
                let passed =
                    unsafe { self.receive_by_marks(nowhere, left, mode, 0, Marks::Unexpected) }?;
                if passed == 0 {
                    break;
                }
                left = left.saturating_sub(passed);
            }
            Ok(())
        });
    }
}

/// Whether a pump continues as soon as it has a processor: it has not ended, and is not stopped.
fn is_running(pump: u32) -> bool {
    let described = std::fs::read_to_string(format!("/proc/{pump}/stat"));
    let described = described.unwrap_or_default();
    // The state follows the name, which may contain any character.
    let state = described
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X' | 'T' | 't'))
}

/// Interrupts the sleep of a pump. False where there is none. The signal does no harm to another process that has its
/// number by now.
fn wake(pump: u32) -> bool {
    let words = [pump as usize, sys::int(libc::SIGCONT), 0, 0, 0, 0];
    // SAFETY: no pointers.
    let sent = unsafe { sys::raw(libc::SYS_kill, words) };
    sent != Err(libc::ESRCH)
}
