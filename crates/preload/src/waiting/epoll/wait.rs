//! `epoll_wait`: virtual members first, the kernel's in turn, then a spin where it pays, then sleep.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::c_int;

use super::{Asleep, EpollSet};
use crate::ground::{cancel, clock, real, sys};
use crate::sockets::listener;
use crate::waiting::{housekeeping, wait};

/// How long the kernel's descriptors may wait while virtual ones keep the loop busy.
const FAIR: u64 = 50 * clock::MICROSECOND;
/// So often a loop that never sleeps puts its members into the inner set.
const REGISTER: u64 = 2000 * clock::MICROSECOND;
/// A sleep that is shorter than this would have been worth a spin.
const SHORT: u64 = 100 * clock::MICROSECOND;
/// So many spins are tried in vain before the loop sleeps at once.
const TRIES: u32 = 4;

/// Whose turn it is.
#[derive(Default)]
pub(super) struct Turns {
    /// When the kernel was last looked at.
    looked: AtomicU64,
    /// The last look at the kernel found something.
    found: AtomicBool,
    /// The last wait was filled with virtual events alone.
    full: AtomicBool,
    /// Spins that may yet be tried.
    tries: AtomicU32,
    /// When new members were last put into the inner set by a loop that did not sleep.
    registered: AtomicU64,
}

impl Turns {
    fn is_stale(&self, now: u64) -> bool {
        now.wrapping_sub(self.looked.load(Ordering::Relaxed)) > FAIR
    }

    fn note_look(&self, found: bool) {
        self.looked.store(clock::now(), Ordering::Relaxed);
        if self.found.load(Ordering::Relaxed) != found {
            self.found.store(found, Ordering::Relaxed);
        }
    }

    /// Whether the kernel must be asked first: virtual members alone filled the last answer.
    fn is_kernels(&self) -> bool {
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
    /// `epoll_pwait` in all its forms; `timeout` in nanoseconds, negative for ever.
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
        listener::rest_unwatched();
        if self.shared.load(Ordering::Relaxed) {
            self.enroll();
        }
        let mut deadline = Deadline::new(timeout);
        loop {
            if !self.is_active() {
                match self.wait_inactive(out, &mut deadline, mask)? {
                    Some(count) => return Ok(count),
                    None => continue,
                }
            }
            if self.turns.is_kernels() {
                let (seen, _) = self.look_at_kernel(out, 0)?;
                if seen > 0 {
                    self.turns.note_full(false);
                    let rest = self.collect(out, seen);
                    return Ok(seen + rest);
                }
            }
            let count = self.collect(out, 0);
            self.turns.note_full(count == out.len());
            if count > 0 {
                return Ok(count + self.add_kernel(out, count));
            }
            if timeout == 0 {
                return self.look_once(out);
            }
            let left = deadline.left();
            if left == 0 {
                return self.look_once(out);
            }
            if self.turns.tries.load(Ordering::Relaxed) > 0 {
                if self.turns.is_stale(clock::now()) {
                    let (seen, ours) = self.look_at_kernel(out, 0)?;
                    if seen > 0 {
                        return Ok(seen);
                    }
                    if ours {
                        continue;
                    }
                }
                if wait::look(self.reaches_far(), || self.peek()) {
                    self.turns.tries.store(TRIES, Ordering::Relaxed);
                    continue;
                }
                self.turns.tries.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(count) = self.sleep(out, left, mask)? {
                return Ok(count);
            }
            if self.strange.swap(false, Ordering::Relaxed) {
                const PAUSE: i64 = 1_000_000;
                let pause = if left < 0 { PAUSE } else { left.min(PAUSE) };
                sys::poll(&mut [], pause, mask)?;
            }
        }
    }

    /// A set that only the kernel knows members of, until somebody adds another.
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
            if self.is_active() {
                // Added since: there is more to look at.
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return Ok(None);
            }
            let got = {
                let undo = || {
                    self.sleepers.fetch_sub(1, Ordering::SeqCst);
                };
                // One sleeper too many only costs a kick.
                cancel::guarded_lightly(undo, || kernel_wait(fd, out, left, mask))
            };
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            got
        };
        let count = got?;
        let kept = self.sift(out, 0, count);
        Ok((kept > 0 || count == 0).then_some(kept))
    }

    /// What the kernel has now, behind the first `have` events; and whether news of ours was among
    /// it.
    fn look_at_kernel(
        &'static self,
        out: &mut [libc::epoll_event],
        have: usize,
    ) -> Result<(usize, bool), i32> {
        self.register_old();
        let ours = self.detached_inner().is_some() && self.take_inner();
        let fd = self.fd.load(Ordering::Relaxed);
        let seen = kernel_wait(fd, &mut out[have..], 0, core::ptr::null())?;
        let kept = self.sift(out, have, seen);
        self.turns.note_look(kept > 0);
        Ok((kept, kept < seen || ours))
    }

    /// A loop that never sleeps must learn of peers that were killed too: members that stay are
    /// put into the inner set all the same, those that come and go are spared the calls.
    fn register_old(&self) {
        let now = clock::now();
        let last = self.turns.registered.load(Ordering::Relaxed);
        if now.wrapping_sub(last) > REGISTER {
            self.turns.registered.store(now, Ordering::Relaxed);
            if let Some(mut state) = self.state.lock() {
                self.register(&mut state);
            }
        }
    }

    /// The answer of a wait that does not wait.
    fn look_once(&'static self, out: &mut [libc::epoll_event]) -> Result<usize, i32> {
        let (seen, ours) = self.look_at_kernel(out, 0)?;
        let waits = || {
            let state = self.state.lock();
            state.is_some_and(|mut state| self.look_at_queues(&mut state))
        };
        if seen < out.len() && (ours || waits()) {
            return Ok(seen + self.collect(out, seen));
        }
        if ours {
            // What was taken and has no room is for the others.
            self.wake();
        }
        Ok(seen)
    }

    /// Adds what the kernel's descriptors have to virtual events, every now and then.
    fn add_kernel(&'static self, out: &mut [libc::epoll_event], count: usize) -> usize {
        // What the kernel had at the last look it may have still.
        let has_some = || self.turns.found.load(Ordering::Relaxed);
        if count == out.len() || !(has_some() || self.turns.is_stale(clock::now())) {
            return 0;
        }
        let Ok((kept, ours)) = self.look_at_kernel(out, count) else {
            return 0;
        };
        if !ours {
            return kept;
        }
        let listeners = self.collect_listeners(out, count + kept, count);
        if self.sleepers.load(Ordering::Relaxed) > 0 && self.peek() {
            // What came since this look began is for the others.
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
    ) -> Result<Option<usize>, i32> {
        let Some((asleep, safe)) = self.arm() else {
            self.turns.tries.store(TRIES, Ordering::Relaxed);
            return Ok(None);
        };
        if housekeeping::are_due() {
            // Found on the way to sleep: who looks again carries it on.
            asleep.wake();
            return Ok(None);
        }
        let limit = match left {
            ..0 if safe == i64::MAX => left,
            ..0 => safe,
            _ => left.min(safe),
        };
        let fd = self.fd.load(Ordering::Relaxed);
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
        let kept = self.sift(out, 0, seen);
        self.turns.note_look(kept > 0);
        if seen > kept {
            wait::learn(began);
            if clock::now().wrapping_sub(began) < SHORT {
                self.turns.tries.store(TRIES, Ordering::Relaxed);
            }
        }
        if kept > 0 {
            let rest = self.collect(out, kept);
            return Ok(Some(kept + rest));
        }
        // Nothing came in the whole time: one look more, for what needs no token.
        Ok(None)
    }
}

/// The thread is awake, or will never be.
fn wake(asleep: &mut Option<Asleep>) {
    if let Some(asleep) = asleep.take() {
        asleep.wake();
    }
}

/// When a wait ends. The clock is not asked before the first time that nothing is there.
struct Deadline {
    timeout: i64,
    start: u64,
}

impl Deadline {
    const fn new(timeout: i64) -> Self {
        Self { timeout, start: 0 }
    }

    /// Nanoseconds that are left, negative for ever.
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
    // Whole milliseconds go through epoll_pwait, which every kernel has.
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
