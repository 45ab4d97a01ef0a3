//! Which processes hold which sockets of the region they share, a bit for each. A process that ends without closing, killed or by
//! `_exit`, as children commonly do, takes nothing with it: those that go on let go of what it held.
//!
//! ```text
//!  before a fork:  look for the ended; a record for the child, with what it will hold
//!  the child:      says its number in the record
//!  later, others:  look for the ended, now and then: every bit is one reference less
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use netchannel_abi::program::{self, HOLDERS, Holder, TAKEN};

use crate::descriptors::attach;
use crate::descriptors::attach::header;
use crate::ground::{clock, process, sys};

/// The record of this process plus one, 0 while it has none.
static OWN: AtomicU32 = AtomicU32::new(0);
/// That of the child which is on its way.
static CHILDS: AtomicU32 = AtomicU32::new(0);
/// The namespace in which this process has its number; 0 where it judges nobody.
static NUMBERING: AtomicU32 = AtomicU32::new(0);
/// When the ended were last looked for.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// Where the next look goes on.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Lets go of one reference to an entry that a process had which has ended, or which is not known where that is 0. False when that is
/// for another process to do. Who knows sockets and links registers it.
pub static LET_GO: OnceLock<fn(usize, u32) -> bool> = OnceLock::new();

fn let_go(entry: usize, process: u32) -> bool {
    LET_GO.get().is_some_and(|let_go| let_go(entry, process))
}

/// The ended are not looked for more often,
const EVERY: u64 = 10_000 * clock::MICROSECOND;
/// nor are more processes asked about in one look.
const ASKED: usize = 16;

fn record(index: usize) -> Option<&'static Holder> {
    let own = attach::current()?;
    own.region.at(program::holder(own.entries, index))
}

fn bits(index: usize, entry: usize) -> Option<(&'static AtomicU64, u64)> {
    let own = attach::current()?;
    if entry >= own.entries || index >= HOLDERS {
        return None;
    }
    let word = own.region.at(program::held(own.entries, index, entry))?;
    Some((word, 1 << (entry % 64)))
}

fn claim() -> u32 {
    let Some(header) = header() else { return 0 };
    for index in 0..HOLDERS {
        let free = record(index).is_some_and(|holder| {
            let process = &holder.process;
            process.load(Ordering::Relaxed) == 0
                && process
                    .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if free {
            let count = u32::try_from(index + 1).unwrap_or(0);
            header.holders.fetch_max(count, Ordering::AcqRel);
            return count;
        }
    }
    0
}

/// A record belongs to `process`, by this process's numbering. Says so, unless it was said.
fn name(claimed: u32, process: u32) {
    if let Some(holder) = claimed
        .checked_sub(1)
        .and_then(|index| record(index as usize))
    {
        let name = u64::from(NUMBERING.load(Ordering::Relaxed)) << 32 | u64::from(process);
        let _ = holder
            .process
            .compare_exchange(TAKEN, name, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn settle_in(claimed: u32) {
    // Namespaces have numbers of 32 bits.
    let numbering = u32::try_from(sys::numbering()).unwrap_or(0);
    NUMBERING.store(numbering, Ordering::Relaxed);
    OWN.store(claimed, Ordering::Release);
    name(claimed, process::number());
}

/// The process has a region.
pub fn initialise() {
    settle_in(claim());
}

/// This process holds an entry, or no longer.
pub fn note(entry: usize, holds: bool) {
    set(&OWN, entry, holds);
}

fn set(claimed: &AtomicU32, entry: usize, holds: bool) {
    let index = claimed.load(Ordering::Relaxed).checked_sub(1);
    if let Some((word, bit)) = index.and_then(|index| bits(index as usize, entry)) {
        if holds {
            word.fetch_or(bit, Ordering::AcqRel);
        } else {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

/// Before a fork, while nobody is inside the gate: there is a record for the child.
pub fn before_fork() {
    look();
    CHILDS.store(claim(), Ordering::Release);
}

/// The child will hold an entry.
pub fn inherit(entry: usize) {
    set(&CHILDS, entry, true);
}

/// After the fork, in the parent. What [`is_child`] and [`no_child`] are to be told.
pub fn in_parent() -> u32 {
    match CHILDS.load(Ordering::Relaxed) {
        // What is not written to needs no copy of its page.
        0 => 0,
        _ => CHILDS.swap(0, Ordering::AcqRel),
    }
}

/// The child is `process`. It may have been killed before it could say so.
pub fn is_child(claimed: u32, process: u32) {
    name(claimed, process);
}

/// This process leaves the region: what it held is let go as if it had ended.
pub fn leave(used: &[usize]) {
    let claimed = OWN.swap(0, Ordering::AcqRel);
    if claimed == 0 {
        // There was no record for it.
        used.iter().for_each(|entry| {
            let_go(*entry, 0);
        });
    }
    no_child(claimed);
}

/// After the fork, in the child.
pub fn in_child() {
    settle_in(CHILDS.swap(0, Ordering::AcqRel));
}

/// There is no child, or it holds nothing any more.
pub fn no_child(claimed: u32) {
    let Some(index) = claimed.checked_sub(1) else {
        return;
    };
    if let Some(holder) = record(index as usize)
        && let_go_for(index as usize, 0)
    {
        holder.process.store(0, Ordering::Release);
    }
}

fn for_each_word(index: usize, mut each: impl FnMut(&'static AtomicU64, usize)) {
    let used = header().map_or(0, |header| header.high_water.load(Ordering::Acquire));
    let mut entry = 0;
    while entry < used as usize
        && let Some((word, _)) = bits(index, entry)
    {
        if word.load(Ordering::Acquire) != 0 {
            each(word, entry);
        }
        entry += 64;
    }
}

/// Looks for the ended, where there ever was another process, and the last look is a while ago.
pub fn look_now_and_then() {
    let others = header().is_some_and(|header| header.holders.load(Ordering::Relaxed) > 1);
    if !others {
        return;
    }
    if clock::is_due(&LOOKED, EVERY) {
        look();
    }
}

/// Lets go of what processes held that have ended: some of them, the next ones next time.
fn look() {
    let Some(header) = header() else { return };
    let used = (header.holders.load(Ordering::Acquire) as usize).min(HOLDERS);
    let mut asked = 0;
    for _ in 0..used {
        let index = NEXT.fetch_add(1, Ordering::Relaxed) as usize % used;
        asked += usize::from(look_at(index));
        if asked == ASKED {
            return;
        }
    }
}

/// Looks at all: no entry is free.
pub fn look_at_all() {
    let used = header().map_or(0, |header| header.holders.load(Ordering::Acquire));
    (0..used as usize).for_each(|index| {
        look_at(index);
    });
}

/// Whether there was a process to ask about.
fn look_at(index: usize) -> bool {
    let Some(holder) = record(index) else {
        return false;
    };
    let name = holder.process.load(Ordering::Acquire);
    let process = (name & 0xffff_ffff) as u32;
    let numbering = NUMBERING.load(Ordering::Relaxed);
    if name == TAKEN || numbering == 0 || name >> 32 != u64::from(numbering) {
        return false;
    }
    if process == process::number() {
        return false;
    }
    let taken = !sys::exists(process)
        && holder
            .process
            .compare_exchange(name, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
    if taken {
        let all = let_go_for(index, process);
        holder
            .process
            .store(if all { 0 } else { name }, Ordering::Release);
    }
    true
}

/// Lets go of what a record says. False when something is for another process to let go of.
fn let_go_for(index: usize, process: u32) -> bool {
    let mut all = true;
    for_each_word(index, |word, first| {
        let mut held = word.load(Ordering::Acquire);
        while held != 0 {
            let bit = held & held.wrapping_neg();
            held &= !bit;
            let entry = first + bit.trailing_zeros() as usize;
            if let_go(entry, process) {
                word.fetch_and(!bit, Ordering::AcqRel);
            } else {
                all = false;
            }
        }
    });
    all
}
