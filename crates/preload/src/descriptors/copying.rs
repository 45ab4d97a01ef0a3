//! Copy workers: whether a large transfer is split over helper threads, and when there must be none.
//!
//! ```text
//!  lane: more room than a stride? --no--> copied here
//!             |yes
//!          plan: what the daemon's policy says, the processors, the class of the socket --none--> copied here
//!             |
//!          POOL (shm::split): helpers and the caller copy, the caller publishes
//! ```
//!
//! Nothing of this is on the way of a small transfer. What the policy is stands in the directory; `netchannel run
//! --copy-workers` says how many whatever the policy says.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::class::Hints;
use netchannel_abi::copying::Rules;
use netchannel_abi::directory::Header;
use netchannel_shm::split::{Direction, Plan, Pool};

use crate::descriptors::attach;
use crate::ground::{process, sys};

/// The helpers of this process. They end after five seconds without work.
pub static POOL: Pool = Pool::new(5_000_000_000);

/// The environment said nothing.
const UNSAID: u32 = u32::MAX;
/// What the environment says instead of the policy: how many workers, the least call that is split, and the size of a part. The
/// latter two are for tests, which want many parts of little.
static SAID: [AtomicU32; 3] = [const { AtomicU32::new(UNSAID) }; 3];
/// Processors of the thread that first made a large transfer, 0 before.
static PROCESSORS: AtomicU32 = AtomicU32::new(0);

/// With fewer processors, programs and the daemon need them all.
const LEAST_PROCESSORS: u32 = 4;
/// A helper looks so many nanoseconds for the next transfer before it sleeps, where there are processors for that.
const PATIENCE: u32 = 50_000;
const PAGE: u64 = 4096;

/// At the start: what the environment says.
pub fn arrive() {
    // SAFETY: getenv returns null or a C string; no other thread runs yet.
    let said = unsafe {
        let value = libc::getenv(c"NETCHANNEL_COPY_WORKERS".as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    let said = said.and_then(|text| core::str::from_utf8(text).ok());
    let numbers = said.into_iter().flat_map(|text| text.split(','));
    for (word, text) in SAID.iter().zip(numbers) {
        word.store(text.parse().unwrap_or(UNSAID), Ordering::Relaxed);
    }
}

/// The policy's word, unless the environment says another.
fn said(index: usize, policy: u32) -> u32 {
    let said = SAID
        .get(index)
        .map_or(UNSAID, |word| word.load(Ordering::Relaxed));
    if said == UNSAID { policy } else { said }
}

fn processors() -> u32 {
    let known = PROCESSORS.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let count = sys::processors().max(1);
    PROCESSORS.store(count, Ordering::Relaxed);
    count
}

/// The rules for this process.
fn rules() -> Option<Rules> {
    let header: &Header = attach::current()?.directory.at(0)?;
    let policy = header.copying.load();
    let usual = if processors() < LEAST_PROCESSORS {
        0
    } else {
        policy.workers.min(processors() / LEAST_PROCESSORS)
    };
    let part = said(2, policy.part);
    let rules = Rules {
        workers: said(0, usual),
        least: said(1, policy.least),
        part,
        local: policy.local.min(said(2, policy.local)),
        ..policy
    };
    Some(rules.bounded())
}

/// How to split a transfer that is part of a call for `call` bytes: how many of the `room` bytes that could go at once, and with
/// whom. `None` when the caller copies alone.
#[cold]
#[inline(never)]
pub fn plan(hints: Hints, call: u64, room: u64, direction: Direction) -> Option<(Plan, u64)> {
    let rules = rules()?;
    let helpers = rules.workers;
    if helpers == 0 || call < rules.least.into() {
        return None;
    }
    let threshold = u64::from(rules.threshold) * u64::from(helpers);
    if hints.says_latency() || POOL.left_to_helpers() >= threshold {
        return None;
    }
    // Two threads on one page, or on one line, would be in each other's way.
    let part = u64::from(rules.part).next_multiple_of(PAGE);
    let local = u64::from(rules.local).next_multiple_of(part);
    let in_flight = u64::from(match direction {
        Direction::In => rules.in_flight_send,
        Direction::Out => rules.in_flight_receive,
    });
    let plan = Plan {
        helpers,
        part,
        local,
        patience: if processors() < LEAST_PROCESSORS {
            0
        } else {
            PATIENCE
        },
    };
    let length = room
        .min(local.saturating_add(in_flight).next_multiple_of(part))
        .min(plan.most());
    (length > local).then_some((plan, length))
}

/// Makes a call that concerns each thread of a process by itself, or that the kernel refuses to who has several, while there is
/// no helper.
pub fn without<R>(call: impl FnOnce() -> R) -> R {
    if process::is_vfork_child() {
        return call();
    }
    POOL.dismiss();
    let result = call();
    POOL.admit();
    result
}

/// No helper from now on: a filter of system calls may end who makes one, or who ends.
pub fn never_again() {
    if !process::is_vfork_child() {
        POOL.dismiss();
    }
}

/// In a forked child.
pub fn reset_in_child() {
    // Where there is no daemon no transfer was shared.
    if attach::current().is_some() || POOL.is_dismissed() {
        POOL.reset_in_child();
    }
}

/// Whether a frame of the calling thread lies on the stack of a helper.
pub fn is_helper() -> bool {
    let here = 0u8;
    POOL.has_stack((&raw const here).addr())
}
