//! `epoll_wait`: virtual members first, the kernel's in turn, then a spin where it pays, then a sleep.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::c_int;

use super::{EpollSet, SleepingSets};
use crate::ground::{cancel, clock, real, sys};
use crate::sockets::listener;
use crate::waiting::signals::BlockedSignals;
use crate::waiting::{housekeeping, wait};

/// How long the kernel's descriptors may wait while virtual ones keep the loop busy.
const KERNEL_INTERVAL: u64 = 50 * clock::MICROSECOND;
/// How often a loop that never sleeps puts its members into the inner set.
const REGISTER_INTERVAL: u64 = 2000 * clock::MICROSECOND;
/// A shorter sleep would have been worth a spin.
const SHORT_SLEEP: u64 = 100 * clock::MICROSECOND;
/// How many spins are tried in vain before the loop sleeps at once.
const SPIN_TRIES: u32 = 4;

/// Whether virtual members or the kernel's are looked at next.
#[derive(Default)]
pub(super) struct Turns {
    /// When the kernel was last polled.
    polled: AtomicU64,
    /// The last poll of the kernel found something.
    found: AtomicBool,
    /// Virtual events alone filled the last answer.
    full: AtomicBool,
    /// Spins that may still be tried.
    tries: AtomicU32,
    /// When a loop that did not sleep last put new members into the inner set.
    registered: AtomicU64,
}

impl Turns {
    fn is_stale(&self, now: u64) -> bool {
        now.wrapping_sub(self.polled.load(Ordering::Relaxed)) > KERNEL_INTERVAL
    }

    fn note_poll(&self, found: bool) {
        self.polled.store(clock::now(), Ordering::Relaxed);
        if self.found.load(Ordering::Relaxed) != found {
            self.found.store(found, Ordering::Relaxed);
        }
    }

    /// Whether the kernel must be polled first: virtual members alone filled the last answer.
    fn is_kernel_first(&self) -> bool {
        self.full.load(Ordering::Relaxed)
            && (self.found.load(Ordering::Relaxed) || self.is_stale(clock::now()))
    }

    fn note_full(&self, full: bool) {
        if self.full.load(Ordering::Relaxed) != full {
            self.full.store(full, Ordering::Relaxed);
        }
    }
}

impl EpollSet {
    /// `epoll_pwait` in all its forms; `timeout` in nanoseconds, negative is forever.
    ///
    /// # Errors
    /// As `epoll_wait`.
    pub fn wait(
        &'static self,
        out: &mut [libc::epoll_event],
        timeout: i64,
        mask: *const libc::sigset_t,
    ) -> Result<usize, i32> {
        cancel::point();
        listener::settle_unwatched();
        if self.shared.load(Ordering::Relaxed) {
            self.enroll();
        }
        let mut deadline = Deadline::new(timeout);
        let mut held = None;
        loop {
            self.settle_fresh();
            if !self.is_active() {
                match self.wait_inactive(out, &mut deadline, mask)? {
                    Some(count) => return Ok(count),
                    None => continue,
                }
            }
            if self.turns.is_kernel_first() {
                let (seen, _) = self.poll_kernel(out, 0)?;
                if seen > 0 {
                    self.turns.note_full(false);
                    let rest = self.collect(out, seen);
                    return Ok(seen + rest);
                }
            }
            let count = self.collect(out, 0);
            self.turns.note_full(count == out.len());
            if count > 0 {
                return Ok(count + self.append_kernel_events(out, count));
            }
            if timeout == 0 {
                return self.poll_once(out);
            }
            let left = deadline.left();
            if left == 0 {
                return self.poll_once(out);
            }
            if self.turns.tries.load(Ordering::Relaxed) > 0 {
                if self.turns.is_stale(clock::now()) {
                    let (seen, ours) = self.poll_kernel(out, 0)?;
                    if seen > 0 {
                        return Ok(seen);
                    }
                    if ours {
                        continue;
                    }
                }
                if wait::spin_beside(self.peers(), || self.has_news()) {
                    self.turns.tries.store(SPIN_TRIES, Ordering::Relaxed);
                    continue;
                }
                self.turns.tries.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(count) = self.sleep(out, left, mask, &mut held)? {
                return Ok(count);
            }
            if self.reported_stranger.swap(false, Ordering::Relaxed) {
                const PAUSE: i64 = 1_000_000;
                let pause = if left < 0 { PAUSE } else { left.min(PAUSE) };
                sys::poll(&mut [], pause, mask)?;
            }
        }
    }

    /// Waits on a set of which only the kernel has members, until another kind of member is added.
    fn wait_inactive(
        &'static self,
        out: &mut [libc::epoll_event],
        deadline: &mut Deadline,
        mask: *const libc::sigset_t,
    ) -> Result<Option<usize>, i32> {
        let fd = self.fd.load(Ordering::Relaxed);
        let left = deadline.left();
        let got = if left == 0 {
            kernel_wait(fd, out, 0, mask)
        } else {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            if self.is_active() || self.has_fresh() {
                // Added since: there are more members to look at.
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return Ok(None);
            }
            let got = {
                let undo = || {
                    self.sleepers.fetch_sub(1, Ordering::SeqCst);
                };
                // One sleeper too many only costs a needless wake-up.
                cancel::guarded_lightly(undo, || kernel_wait(fd, out, left, mask))
            };
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            got
        };
        let count = got?;
        let kept = self.filter_own(out, 0, count);
        Ok((kept > 0 || count == 0).then_some(kept))
    }

    /// Polls the kernel into `out`, behind the first `have` events. Also returns whether there was news of the
    /// library's own members.
    fn poll_kernel(
        &'static self,
        out: &mut [libc::epoll_event],
        have: usize,
    ) -> Result<(usize, bool), i32> {
        self.register_if_due();
        let ours = self.detached_inner().is_some() && self.take_inner();
        let fd = self.fd.load(Ordering::Relaxed);
        let room = out.len() - have;
        let mut poll = || -> Result<(usize, usize), i32> {
            let seen = kernel_wait(fd, &mut out[have..], 0, core::ptr::null())?;
            Ok((seen, self.filter_own(out, have, seen)))
        };
        let (seen, mut kept) = poll()?;
        let ours = ours || kept < seen;
        if kept == 0 && seen > 0 && seen == room {
            // The library's own events filled the answer: those of members may be behind them.
            kept = poll()?.1;
        }
        self.turns.note_poll(kept > 0);
        Ok((kept, ours))
    }

    /// Puts members that stay into the inner set, now and then: a loop that never sleeps must notice killed peers, too.
    /// Short-lived members are spared the system calls.
    fn register_if_due(&self) {
        let now = clock::now();
        let last = self.turns.registered.load(Ordering::Relaxed);
        if now.wrapping_sub(last) > REGISTER_INTERVAL {
            self.turns.registered.store(now, Ordering::Relaxed);
            if let Some(mut state) = self.state.lock() {
                self.register(&mut state);
            }
        }
    }

    /// The answer of a wait with a timeout of zero.
    fn poll_once(&'static self, out: &mut [libc::epoll_event]) -> Result<usize, i32> {
        let (seen, ours) = self.poll_kernel(out, 0)?;
        let has_queued = || {
            let state = self.state.lock();
            state.is_some_and(|mut state| self.check_queues(&mut state))
        };
        if seen < out.len() && (ours || has_queued()) {
            return Ok(seen + self.collect(out, seen));
        }
        if ours {
            // Events that were taken and found no room are for the other sleepers.
            self.wake();
        }
        Ok(seen)
    }

    /// Adds the kernel's events to virtual ones, every now and then.
    fn append_kernel_events(&'static self, out: &mut [libc::epoll_event], count: usize) -> usize {
        // The kernel may still have what it had at the last poll.
        let has_some = || self.turns.found.load(Ordering::Relaxed);
        if count == out.len() || !(has_some() || self.turns.is_stale(clock::now())) {
            return 0;
        }
        let Ok((kept, ours)) = self.poll_kernel(out, count) else {
            return 0;
        };
        if !ours {
            return kept;
        }
        let listeners = self.collect_listeners(out, count + kept, count);
        if self.sleepers.load(Ordering::Relaxed) > 0 && self.has_news() {
            // News since this look began is for the other sleepers.
            self.wake();
        }
        kept + listeners
    }

    /// Sleeps once. `None` when there is something to look at.
    fn sleep(
        &'static self,
        out: &mut [libc::epoll_event],
        left: i64,
        mask: *const libc::sigset_t,
        held: &mut Option<BlockedSignals>,
    ) -> Result<Option<usize>, i32> {
        let Some((asleep, safe)) = self.arm() else {
            self.turns.tries.store(SPIN_TRIES, Ordering::Relaxed);
            return Ok(None);
        };
        if housekeeping::are_due() {
            // Found on the way to sleep: the next pass carries it on.
            asleep.wake();
            return Ok(None);
        }
        let limit = match left {
            ..0 if safe == i64::MAX => left,
            ..0 => safe,
            _ => left.min(safe),
        };
        let fd = self.fd.load(Ordering::Relaxed);
        let mask = BlockedSignals::mask_for(held.as_ref(), mask);
        let began = clock::now();
        let mut asleep = Some(asleep);
        let undo = || wake(&mut asleep);
        let detached = self.detached_inner();
        let slept = cancel::guarded(undo, || match detached {
            None => kernel_wait(fd, out, limit, mask),
            Some(inner) => self.sleep_on_both(inner, limit, mask).map(|_| 0),
        });
        wake(&mut asleep);
        let mut seen = slept?;
        if detached.is_some() {
            self.take_inner();
            seen = kernel_wait(fd, out, 0, core::ptr::null())?;
        }
        let kept = self.filter_own(out, 0, seen);
        self.turns.note_poll(kept > 0);
        if seen > kept {
            wait::learn(began);
            if clock::now().wrapping_sub(began) < SHORT_SLEEP {
                self.turns.tries.store(SPIN_TRIES, Ordering::Relaxed);
            }
        }
        if kept > 0 {
            let rest = self.collect(out, kept);
            return Ok(Some(kept + rest));
        }
        if seen == 0 {
            // No event in the whole time: one more look, for news without a token. A signal between two sleeps would end
            // neither.
            *held = held.take().or_else(BlockedSignals::of_handlers);
        }
        Ok(None)
    }
}

/// Ends the sleep, also when the thread is cancelled.
fn wake(asleep: &mut Option<SleepingSets>) {
    if let Some(asleep) = asleep.take() {
        asleep.wake();
    }
}

/// When a wait ends. The clock is read only once the wait has found nothing.
struct Deadline {
    timeout: i64,
    start: u64,
}

impl Deadline {
    const fn new(timeout: i64) -> Self {
        Self { timeout, start: 0 }
    }

    /// Nanoseconds that are left, negative is forever.
    fn left(&mut self) -> i64 {
        if self.timeout <= 0 {
            return self.timeout;
        }
        if self.start == 0 {
            self.start = clock::nanoseconds();
            return self.timeout;
        }
        clock::remaining(self.timeout, self.start)
    }
}

fn kernel_wait(
    fd: i32,
    out: &mut [libc::epoll_event],
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    let most = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    let pointer = out.as_mut_ptr();
    if timeout == 0 {
        return sys::epoll_take(fd, out);
    }
    // Whole milliseconds use `epoll_pwait`, which every kernel has.
    // SAFETY: the slice is the caller's; the mask is null or the caller's valid set.
    let got = unsafe {
        if timeout < 0 || timeout % 1_000_000 == 0 {
            let milliseconds = if timeout < 0 {
                -1
            } else {
                c_int::try_from(timeout / 1_000_000).unwrap_or(c_int::MAX)
            };
            if mask.is_null() {
                real::epoll_wait(fd, pointer, most, milliseconds)
            } else {
                real::epoll_pwait(fd, pointer, most, milliseconds, mask)
            }
        } else {
            let time = libc::timespec {
                tv_sec: timeout / 1_000_000_000,
                tv_nsec: timeout % 1_000_000_000,
            };
            real::epoll_pwait2(fd, pointer, most, &raw const time, mask)
        }
    };
    usize::try_from(got).map_err(|_| real::errno())
}
