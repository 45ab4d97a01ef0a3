//! Waiting: a spin of microseconds that becomes shorter where it does not pay, then a sleep in the kernel on the
//! anchor, so that signals, timeouts and cancellation keep the kernel's semantics.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use netchannel_abi::link::waiter as bits;
use netchannel_abi::program::RELAY;

use crate::descriptors::attach::header;
use crate::ground::clock::{self, MICROSECOND};
use crate::ground::{cancel, process, real, sys};
use crate::sockets::lane::{Lane, WRITER};
use crate::sockets::link::LinkEnd;
use crate::sockets::socket::status;
use crate::waiting::{holds, housekeeping, replacement, signals};

/// Tokens that are taken at once.
const TOKENS: usize = 64;

type Patience = netchannel_ring::patience::Patience<MICROSECOND>;

thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::new(0)) };
}

/// Not inlined: otherwise the address of the thread-local would be computed by calls that do not wait, too.
#[inline(never)]
fn patience() -> Patience {
    PATIENCE.get()
}

#[inline(never)]
fn store_patience(patience: Patience) {
    PATIENCE.set(patience);
}

#[unsafe(link_section = ".data.netchannel_start")]
static SINGLE_PROCESSOR: AtomicBool = AtomicBool::new(false);

/// Finds out once whether the process has more than one processor: on a single one, spinning never pays.
pub fn initialise() {
    SINGLE_PROCESSOR.store(sys::processors() == 1, Ordering::Relaxed);
}

/// With whom a socket is connected, or an event loop: the greatest of its sockets' counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peers {
    /// With programs of this host.
    Near,
    /// With programs of other hosts, for which another way of spinning is better.
    Far,
}

impl Peers {
    /// Those at the other end of a link.
    pub fn of(link: &LinkEnd) -> Self {
        if link.listener == RELAY {
            Self::Far
        } else {
            Self::Near
        }
    }
}

/// Spins until `ready` or until the thread's budget is used up. True when ready.
#[inline]
pub fn spin_beside(peers: Peers, ready: impl FnMut() -> bool) -> bool {
    match peers {
        Peers::Near => spin_near(ready),
        Peers::Far => spin_yielding(ready),
    }
}

/// Spins, and yields once that has not helped at once.
#[inline]
fn spin_near(mut ready: impl FnMut() -> bool) -> bool {
    if ready() {
        return true;
    }
    if SINGLE_PROCESSOR.load(Ordering::Relaxed) {
        return false;
    }
    patience().spin_beside(clock::now, sys::yield_now, ready)
}

/// Yields between looks, until the thread has spent its budget itself. Bytes from another host come through two
/// daemons: where these and the peer share the program's processors, the program waits for their work, and yielding
/// needs no wake-up.
fn spin_yielding(ready: impl FnMut() -> bool) -> bool {
    let mut patience = patience();
    let found = patience.spin_yielding(clock::now, sys::yield_now, ready);
    store_patience(patience);
    found
}

/// Learns from a sleep that began at `start`: a spin would have been better than a short sleep.
pub fn learn(start: u64) {
    let slept = clock::now().wrapping_sub(start);
    let mut patience = patience();
    patience.learn(slept);
    store_patience(patience);
    if let Some(header) = header() {
        header.sleeps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until `wanted` ([`bits::DATA`] or [`bits::SPACE`]) may be there. Errors as a blocking socket call: `EAGAIN`
/// after its timeout, `EINTR`.
pub fn sleep_on(lane: &mut Lane, wanted: u32, ready: impl Fn(&Lane) -> bool) -> Result<(), i32> {
    let unit = if wanted == bits::DATA { 1 } else { WRITER };
    sleep(lane, unit, wanted, ready, true)
}

/// As [`sleep_on`] for bytes, ended by any signal and by any change of this side.
pub fn sleep_for_any_change(lane: &mut Lane, ready: impl Fn(&Lane) -> bool) -> Result<(), i32> {
    sleep(lane, WRITER + 1, bits::DATA, ready, false)
}

#[inline(always)]
fn sleep(
    lane: &mut Lane,
    unit: u32,
    wanted: u32,
    ready: impl Fn(&Lane) -> bool,
    restarts: bool,
) -> Result<(), i32> {
    if spin_beside(Peers::of(lane.link), || ready(lane)) {
        return Ok(());
    }
    let entry = lane.socket.entry;
    holds::hold(&lane.socket);
    lane.begin_sleep(unit, wanted);
    // Before the last look: a hold that expires after it bounds the sleep, and an expired one is seen by it.
    let held = lane.hold_remaining().filter(|_| wanted == bits::DATA);
    let held = if housekeeping::any_due() {
        housekeeping::announce_due();
        housekeeping::earliest(held)
    } else {
        held
    };
    if ready(lane) {
        lane.end_sleep(unit, wanted);
        holds::let_go(&lane.socket);
        return Ok(());
    }
    let (start, slept_on) = (clock::now(), lane.fd);
    let timeout = if wanted == bits::DATA {
        &entry.receive_timeout
    } else {
        &entry.send_timeout
    };
    let limit = timeout.load(Ordering::Relaxed);
    let undo = || {
        lane.end_sleep(unit, wanted);
        holds::release(&lane.socket);
    };
    // Nobody else needs the tokens.
    let takes = process::is_single_threaded() && lane.socket.is_unshared();
    let mut taken = false;
    let result = cancel::guarded(undo, || {
        if lane.socket.has(status::ANCHOR_SHUT) {
            sleep_briefly(lane.fd)
        } else if let Some(held) = held {
            sleep_while_held(lane, limit, held, restarts, &ready)
        } else if wanted == bits::DATA && signals::interrupts_calls(libc::SIGURG) {
            // Another thread may set the owner of the urgent signal meanwhile.
            sleep_until_urgent(lane, limit)
        } else if limit == 0 && restarts {
            sleep_restartable(lane.fd, takes.then_some(&mut taken))
        } else if limit == 0 {
            poll_once(lane.fd, -1)
        } else {
            sleep_limited(lane.fd, limit)
        }
    });
    learn(start);
    // Before the count is changed that a replacement waits for.
    let replaced = replacement::is_under_way();
    follow_orphan(lane);
    let others = lane.end_sleep(unit, wanted);
    if replaced {
        replacement::wait();
        follow_orphan(lane);
    }
    holds::let_go(&lane.socket);
    if replaced {
        return Ok(());
    }
    match result {
        Ok(true) => {
            if others {
                // The token wakes the other sleepers too; the last of them takes it.
                let until = clock::now().wrapping_add(1000 * MICROSECOND);
                while entry.receive.sleepers.load(Ordering::Acquire) > 0
                    && !ready(lane)
                    && clock::now() < until
                {
                    sys::yield_now();
                }
            }
            if taken {
                lane.note_tokens(None);
            } else if lane.socket.is(lane.fd) {
                lane.take_tokens(None);
            }
            Ok(())
        }
        Ok(false) => {
            // Of a number that was closed meanwhile it may be the end of another file.
            if lane.fd == slept_on && lane.socket.is(lane.fd) {
                lane.peer_ended();
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The program closed or replaced the descriptor during the sleep: the call continues with the descriptor that was kept
/// for it.
fn follow_orphan(lane: &mut Lane) {
    let orphan = lane.socket.local.orphan.load(Ordering::Acquire);
    if orphan > 0 && !lane.socket.is(lane.fd) && lane.socket.is(orphan - 1) {
        lane.fd = orphan - 1;
    }
}

/// Sleeps a millisecond where the anchor brings no more tokens.
fn sleep_briefly(fd: i32) -> Result<bool, i32> {
    let mut set = [libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    }];
    signals::sleep_in_poll(&mut set, 1_000_000, core::ptr::null())?;
    Ok(set[0].revents & libc::POLLHUP == 0)
}

/// Sleeps in `recv`, which a signal restarts or interrupts as for a TCP socket, and which is a cancellation point. True
/// for a token, false for the end of the peer. Tokens are left on the anchor, unless the caller wants to know that they
/// were `taken`.
fn sleep_restartable(fd: i32, taken: Option<&mut bool>) -> Result<bool, i32> {
    let mut tokens = [0u8; TOKENS];
    let (most, flags) = if taken.is_some() {
        (TOKENS, 0)
    } else {
        (1, libc::MSG_PEEK)
    };
    // SAFETY: the tokens are a local with room for so many.
    let got = unsafe { real::recv(fd, tokens.as_mut_ptr().cast(), most, flags) };
    match got {
        1.. => {
            if let Some(taken) = taken {
                *taken = true;
            }
            Ok(true)
        }
        0 => Ok(false),
        _ => match real::errno() {
            libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN => Ok(false),
            // The program has made the descriptor non-blocking meanwhile.
            libc::EAGAIN => {
                let revents = signals::sleep_on_one(fd)?;
                Ok(revents & (libc::POLLHUP | libc::POLLERR) == 0)
            }
            error => Err(error),
        },
    }
}

/// Sleeps where urgent bytes raise a signal. An urgent byte and its signal come together, and a reader in front of the
/// byte is interrupted, not woken: so the signal is blocked until that is decided.
#[cold]
fn sleep_until_urgent(lane: &Lane, microseconds: u64) -> Result<bool, i32> {
    let held = signals::BlockedSignals::new();
    let limit = match microseconds {
        0 => -1,
        limit => nanoseconds(limit),
    };
    let revents = signals::sleep_restarting(lane.fd, held.as_ref(), |set, mask| {
        sleep_at_most(set, limit, mask)
    })?;
    // Another thread has closed the descriptor, and may have opened another file under its number: then a signal may be
    // the cause of the wake-up.
    let closed = revents & libc::POLLNVAL != 0 || !lane.socket.is(lane.fd);
    if closed && signals::BlockedSignals::is_any_pending()
        || lane.is_before_urgent() && signals::BlockedSignals::is_pending(libc::SIGURG)
    {
        return Err(libc::EINTR);
    }
    Ok(revents & (libc::POLLHUP | libc::POLLERR) == 0)
}

/// Sleeps for at most `held` nanoseconds, after which bytes that are held back may be visible, and goes on while they are
/// not.
#[cold]
fn sleep_while_held(
    lane: &Lane,
    microseconds: u64,
    held: i64,
    restarts: bool,
    ready: &impl Fn(&Lane) -> bool,
) -> Result<bool, i32> {
    let limit = match microseconds {
        0 => i64::MAX,
        limit => nanoseconds(limit),
    };
    let (mut held, start) = (held, clock::nanoseconds());
    loop {
        let left = clock::remaining(limit, start);
        let slept = if microseconds == 0 && restarts {
            let revents = signals::sleep_restarting(lane.fd, None, |set, mask| {
                sleep_at_most(set, held, mask)
            });
            revents.map(|revents| revents & (libc::POLLHUP | libc::POLLERR) == 0)
        } else {
            poll_once(lane.fd, left.min(held))
        };
        match slept {
            Err(libc::EAGAIN) if held <= left => match lane.hold_remaining() {
                Some(again) if !ready(lane) && !housekeeping::any_due() => held = again,
                _ => return Ok(true),
            },
            slept => return slept,
        }
    }
}

fn sleep_limited(fd: i32, microseconds: u64) -> Result<bool, i32> {
    poll_once(fd, nanoseconds(microseconds))
}

/// A timeout of a socket, in the unit of [`signals::sleep_in_poll`].
pub fn nanoseconds(microseconds: u64) -> i64 {
    i64::try_from(microseconds)
        .unwrap_or(i64::MAX / 1000)
        .saturating_mul(1000)
}

/// As [`signals::sleep_in_poll`], with an error after the time-out, as of a socket's call.
fn sleep_at_most(
    set: &mut [libc::pollfd],
    nanoseconds: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    match signals::sleep_in_poll(set, nanoseconds, mask) {
        Ok(0) => Err(libc::EAGAIN),
        slept => slept,
    }
}

fn poll_once(fd: i32, nanoseconds: i64) -> Result<bool, i32> {
    let mut set = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    sleep_at_most(&mut set, nanoseconds, core::ptr::null())?;
    Ok(set[0].revents & (libc::POLLHUP | libc::POLLERR) == 0)
}
