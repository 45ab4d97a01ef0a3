//! The table of owners: which processes hold which sockets of the region that they share, one bit for each. A process
//! may end without closing its sockets: it is killed, or calls `_exit`, as children commonly do. Then its relatives
//! release its references.
//! ```text
//!  before a fork:  look for ended processes; claim a record for the child, set the bits of its future sockets
//!  the child:      writes its number into the record
//!  later, others:  look for ended processes now and then: every bit is one reference less
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use netchannel_abi::program::{self, HOLDERS, Holder, TAKEN, is_taken};

use crate::descriptors::attach;
use crate::descriptors::attach::header;
use crate::ground::{clock, process, sys};

/// This process's record, as a [`Claim`].
static OWN_RECORD: AtomicU64 = AtomicU64::new(0);
/// The record of a child that is being forked, in the same form.
#[unsafe(link_section = ".data.netchannel_start")]
static CHILD_RECORD: AtomicU64 = AtomicU64::new(0);
/// The namespace in which this process has its number; 0 where it is unknown, and the process judges no other.
static NAMESPACE: AtomicU32 = AtomicU32::new(0);
/// When ended processes were last looked for.
static LAST_LOOK: AtomicU64 = AtomicU64::new(0);
/// The record at which the next look continues.
static NEXT_RECORD: AtomicU32 = AtomicU32::new(0);

/// Releases one reference that an ended process had to an entry; `process` 0 is an unknown one. False when another
/// process must do it. Registered by the module that knows sockets and links.
pub static RELEASE_REFERENCE: OnceLock<fn(usize, u32) -> bool> = OnceLock::new();

fn release_reference(entry: usize, process: u32) -> bool {
    RELEASE_REFERENCE
        .get()
        .is_some_and(|release_reference| release_reference(entry, process))
}

/// The least time between two searches for ended processes.
const EVERY: u64 = 10_000 * clock::MICROSECOND;
/// The most processes that one search asks about.
const MOST_ASKED: usize = 16;

/// A record that was claimed: its number plus one in the lower half, and in the upper half what tells this claim from
/// others of the same record. 0 where no record was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(u64);

impl Claim {
    /// No record.
    pub const NONE: Self = Self(0);

    fn new(index: usize) -> Self {
        let number = u64::try_from(index + 1).unwrap_or(0);
        Self(clock::now() << 32 | number)
    }

    fn index(self) -> Option<usize> {
        (self.0 & u64::from(u32::MAX) != 0).then(|| (self.0 & u64::from(u32::MAX)) as usize - 1)
    }

    /// What the record contains until it is given to a process.
    fn word(self) -> u64 {
        self.0 | TAKEN
    }
}

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

fn claim() -> Claim {
    let Some(header) = header() else {
        return Claim::NONE;
    };
    for index in 0..HOLDERS {
        let claimed = Claim::new(index);
        let free = record(index).is_some_and(|holder| {
            let process = &holder.process;
            process.load(Ordering::Relaxed) == 0
                && process
                    .compare_exchange(0, claimed.word(), Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if free {
            let count = u32::try_from(index + 1).unwrap_or(0);
            header.holders.fetch_max(count, Ordering::AcqRel);
            return claimed;
        }
    }
    Claim::NONE
}

/// Gives a record to `process`, by its number in this process's namespace, unless it was given before: the process may
/// even have ended, and another one have claimed the record.
fn assign(claimed: Claim, process: u32) {
    if let Some(holder) = claimed.index().and_then(record) {
        let name = u64::from(NAMESPACE.load(Ordering::Relaxed)) << 32 | u64::from(process);
        let _ = holder.process.compare_exchange(
            claimed.word(),
            name,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

fn learn_namespace() {
    // The kernel's numbers of namespaces have 32 bits.
    let namespace = u32::try_from(sys::pid_namespace()).unwrap_or(0);
    NAMESPACE.store(namespace, Ordering::Relaxed);
}

fn adopt_record(claimed: Claim) {
    OWN_RECORD.store(claimed.0, Ordering::Release);
    assign(claimed, process::number());
}

/// Claims a record when the process gets a region.
pub fn initialise() {
    learn_namespace();
    adopt_record(claim());
}

/// Notes that this process holds an entry, or no longer.
pub fn note(entry: usize, holds: bool) {
    set(&OWN_RECORD, entry, holds);
}

fn set(claimed: &AtomicU64, entry: usize, holds: bool) {
    let index = Claim(claimed.load(Ordering::Relaxed)).index();
    if let Some((word, bit)) = index.and_then(|index| bits(index, entry)) {
        if holds {
            word.fetch_or(bit, Ordering::AcqRel);
        } else {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

/// Before a fork, while no thread is inside the gate: claims a record for the child.
pub fn before_fork() {
    collect_some();
    CHILD_RECORD.store(claim().0, Ordering::Release);
}

/// Notes that the child will hold an entry.
pub fn inherit(entry: usize) {
    set(&CHILD_RECORD, entry, true);
}

/// After a fork, in the parent: the child's record, for [`assign_child`] and [`drop_child`].
pub fn in_parent() -> Claim {
    Claim(match CHILD_RECORD.load(Ordering::Relaxed) {
        // A page that is not written to need not be copied.
        0 => 0,
        _ => CHILD_RECORD.swap(0, Ordering::AcqRel),
    })
}

/// Gives the record to the child `process`, which may have been killed before it could do so itself.
pub fn assign_child(claimed: Claim, process: u32) {
    assign(claimed, process);
}

/// This process leaves the region: its references are released as if it had ended.
pub fn leave(used: &[usize]) {
    let claimed = Claim(OWN_RECORD.swap(0, Ordering::AcqRel));
    if claimed.index().is_none() {
        // The process has no record.
        used.iter().for_each(|entry| {
            release_reference(*entry, 0);
        });
    }
    drop_child(claimed);
}

/// After a fork, in the child; `has_namespace` where it has its number in its parent's namespace.
pub fn in_child(has_namespace: bool) {
    if !has_namespace {
        learn_namespace();
    }
    adopt_record(Claim(CHILD_RECORD.swap(0, Ordering::AcqRel)));
}

/// Frees the record of a child that does not exist or holds nothing any more.
pub fn drop_child(claimed: Claim) {
    let Some(index) = claimed.index() else {
        return;
    };
    if let Some(holder) = record(index)
        && release_all_of(index, 0)
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

/// Looks for ended processes where there ever was another process, and the last look is some time ago.
pub fn collect_if_due() {
    let others = header().is_some_and(|header| header.holders.load(Ordering::Relaxed) > 1);
    if !others {
        return;
    }
    if clock::is_due(&LAST_LOOK, EVERY) {
        collect_some();
    }
}

/// Releases the references of some ended processes; the next look continues with others.
fn collect_some() {
    let Some(header) = header() else { return };
    let used = (header.holders.load(Ordering::Acquire) as usize).min(HOLDERS);
    let mut asked = 0;
    for _ in 0..used {
        let index = NEXT_RECORD.fetch_add(1, Ordering::Relaxed) as usize % used;
        asked += usize::from(collect(index));
        if asked == MOST_ASKED {
            return;
        }
    }
}

/// Looks at all records: there is no free entry.
pub fn collect_all() {
    let used = header().map_or(0, |header| header.holders.load(Ordering::Acquire));
    (0..used as usize).for_each(|index| {
        collect(index);
    });
}

/// Looks at one record. Whether the kernel was asked about a process.
fn collect(index: usize) -> bool {
    let Some(holder) = record(index) else {
        return false;
    };
    let name = holder.process.load(Ordering::Acquire);
    let process = (name & 0xffff_ffff) as u32;
    let namespace = NAMESPACE.load(Ordering::Relaxed);
    if is_taken(name) || namespace == 0 || name >> 32 != u64::from(namespace) {
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
        let all = release_all_of(index, process);
        holder
            .process
            .store(if all { 0 } else { name }, Ordering::Release);
    }
    true
}

/// Releases all references of a record. False when another process must release some.
fn release_all_of(index: usize, process: u32) -> bool {
    let mut all = true;
    for_each_word(index, |word, first| {
        let mut held = word.load(Ordering::Acquire);
        while held != 0 {
            let bit = held & held.wrapping_neg();
            held &= !bit;
            let entry = first + bit.trailing_zeros() as usize;
            if release_reference(entry, process) {
                word.fetch_and(!bit, Ordering::AcqRel);
            } else {
                all = false;
            }
        }
    });
    all
}
