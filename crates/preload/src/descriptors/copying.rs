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
//! Small transfers never get here. The policy is in the directory; `netchannel run --copy-workers` sets the number
//! of workers regardless of the policy.

use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::class::Hints;
use netchannel_abi::copying::Rules;
use netchannel_abi::directory::Header;
use netchannel_shm::split::{Direction, Plan, Pool};

use crate::descriptors::attach;
use crate::ground::{process, sys};

/// The helpers of this process. They end after five seconds without work.
pub static POOL: Pool = Pool::new(5_000_000_000);

/// The environment sets no value.
const NO_OVERRIDE: u32 = u32::MAX;
/// Values of the environment that override the policy: the number of workers, the least call that is split, and the
/// size of a part. The latter two are for tests, which want many parts of few bytes.
static OVERRIDES: [AtomicU32; 3] = [const { AtomicU32::new(NO_OVERRIDE) }; 3];
/// Processors of the thread that made the first large transfer, 0 before.
static PROCESSORS: AtomicU32 = AtomicU32::new(0);

/// With fewer processors, programs and the daemon need all of them.
const LEAST_PROCESSORS: u32 = 4;
/// Nanoseconds for which a helper spins for the next transfer before it sleeps, where there are enough processors.
const SPIN_NANOSECONDS: u32 = 50_000;
const PAGE: u64 = 4096;

/// Takes the values that the environment sets, at the start.
#[cold]
pub fn begin(override_text: &[u8]) {
    let override_text = core::str::from_utf8(override_text).ok();
    let numbers = override_text.into_iter().flat_map(|text| text.split(','));
    for (word, text) in OVERRIDES.iter().zip(numbers) {
        word.store(text.parse().unwrap_or(NO_OVERRIDE), Ordering::Relaxed);
    }
}

/// The value of the policy, unless the environment overrides it.
fn overridden(index: usize, policy: u32) -> u32 {
    let override_text = OVERRIDES
        .get(index)
        .map_or(NO_OVERRIDE, |word| word.load(Ordering::Relaxed));
    if override_text == NO_OVERRIDE {
        policy
    } else {
        override_text
    }
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
    let part = overridden(2, policy.part);
    let rules = Rules {
        workers: overridden(0, usual),
        least: overridden(1, policy.least),
        part,
        local: policy.local.min(overridden(2, policy.local)),
        ..policy
    };
    Some(rules.bounded())
}

/// How to split a transfer that is part of a call for `call` bytes: the helpers, and how many of the `room` bytes that
/// fit are copied at once. `None` when the caller copies alone.
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
    // Two threads on one page, or on one cache line, would slow each other down.
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
            SPIN_NANOSECONDS
        },
    };
    let length = room
        .min(local.saturating_add(in_flight).next_multiple_of(part))
        .min(plan.most());
    (length > local).then_some((plan, length))
}

/// Makes a call without helpers: one that applies to each thread by itself, or that the kernel refuses to a process
/// with several threads.
pub fn without_helpers<R>(call: impl FnOnce() -> R) -> R {
    if process::is_vfork_child() {
        return call();
    }
    POOL.dismiss();
    let result = call();
    POOL.admit();
    result
}

/// Ends all helpers for good: a filter of system calls may kill a process that makes or ends a thread.
pub fn disable() {
    if !process::is_vfork_child() {
        POOL.dismiss();
    }
}

/// In a forked child.
pub fn reset_in_child() {
    // Without a daemon no transfer was ever split.
    if attach::current().is_some() || POOL.is_dismissed() {
        POOL.reset_in_child();
    }
}

/// Whether the calling thread runs on the stack of a helper.
pub fn is_helper() -> bool {
    let on_stack = 0u8;
    POOL.has_stack((&raw const on_stack).addr())
}
