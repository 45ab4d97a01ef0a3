//! The processes of a program that have ended, according to the holders in its region. Entries that only they held are
//! gone, although they still exist: surviving processes free them when they next look.

use crate::namespace;
use crate::turn::Turn;
use netchannel_abi::program::{self, HOLDERS, Holder};
use netchannel_shm::{Outside, Snapshot};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The number of binary digits of a count of records.
const DIGITS: usize = HOLDERS.ilog2() as usize + 1;

/// The inode of the PID namespace of the daemon; 0 where it is not known.
static OWN_NAMESPACE: LazyLock<u32> = LazyLock::new(|| {
    let own = namespace::inode("self", "pid");
    own.and_then(|own| u32::try_from(own).ok()).unwrap_or(0)
});

/// How many ended processes hold each of 64 entries: the digits of the 64 counts, with one word for each digit.
#[derive(Clone, Debug, Default)]
struct Counts([u64; DIGITS]);

impl Counts {
    /// Increments the counts whose bit is set.
    fn add(&mut self, bits: u64) {
        let mut carry = bits;
        for digit in &mut self.0 {
            (*digit, carry) = (*digit ^ carry, *digit & carry);
            if carry == 0 {
                return;
            }
        }
    }

    fn of(&self, entry: usize) -> u32 {
        let digits = self.0.iter().zip(0..);
        digits.fold(0, |sum, (digit, place)| {
            sum | u32::from(digit >> (entry % 64) & 1 == 1) << place
        })
    }
}

/// The holders of the entries of a region, found step by step.
#[derive(Debug)]
pub struct ProcessRegistry {
    entries: usize,
    /// The number of records that are in use, as the region says, and the next one to examine.
    records: usize,
    next: usize,
    /// The records in use: the index, and whether the process has ended.
    used: Vec<(usize, bool)>,
    /// The number of records whose entries were counted.
    counted: usize,
    ended: Vec<Counts>,
    /// A bit for each entry that a living process holds.
    living: Vec<u64>,
}

impl ProcessRegistry {
    /// For a region with this number of entries, which claims this number of records.
    pub fn new(entries: usize, records: u32) -> Self {
        Self {
            entries,
            records: usize::try_from(records).unwrap_or(HOLDERS).min(HOLDERS),
            next: 0,
            used: Vec::new(),
            counted: 0,
            ended: Vec::new(),
            living: Vec::new(),
        }
    }

    /// Continues for a turn. Returns whether it is complete.
    pub fn run_turn(&mut self, outside: &Outside, copy: &mut Snapshot, turn: &Turn) -> bool {
        while self.next < self.records {
            self.look(outside, copy);
            if turn.is_over() {
                return false;
            }
        }
        // The held entries matter only where a process has ended.
        if !self.used.iter().any(|(_, has_ended)| *has_ended) {
            return true;
        }
        while let Some((index, has_ended)) = self.used.get(self.counted).copied() {
            self.count(index, has_ended, outside, copy);
            self.counted += 1;
            if turn.is_over() {
                return false;
            }
        }
        true
    }

    /// Examines the next record in use, and whether its process lives. A process in another PID namespace than the
    /// daemon's counts as living.
    fn look(&mut self, outside: &Outside, copy: &mut Snapshot) {
        let place = |index| program::holder(self.entries, index);
        let Some(found) = outside.next_data(place(self.next)) else {
            self.next = self.records;
            return;
        };
        let index = (found - place(0)) / (place(1) - place(0));
        self.next = index + 1;
        if index >= self.records
            || copy
                .fill(outside, place(index), size_of::<Holder>())
                .is_err()
        {
            return;
        }
        let record = copy.at::<Holder>(place(index));
        let name = record.map_or(0, |record| record.process.load(Acquire));
        // A claimed record without a process has no such number.
        let process = i32::try_from(name & 0xffff_ffff)
            .ok()
            .and_then(Pid::from_raw);
        if let Some(process) = process {
            let judged = *OWN_NAMESPACE != 0 && name >> 32 == u64::from(*OWN_NAMESPACE);
            let has_ended = judged && test_kill_process(process) == Err(Errno::SRCH);
            self.used.push((index, has_ended));
        }
    }

    /// Counts the entries that a record's process holds.
    fn count(&mut self, record: usize, has_ended: bool, outside: &Outside, copy: &mut Snapshot) {
        let words = self.entries.div_ceil(64);
        self.ended.resize(words, Counts::default());
        self.living.resize(words, 0);
        let at_once = copy.room() / size_of::<AtomicU64>();
        let mut first = 0;
        while first < words {
            let count = at_once.min(words - first);
            let place = program::held(self.entries, record, first * 64);
            let filled = copy.fill(outside, place, count * size_of::<AtomicU64>());
            let bits = filled.ok().and_then(|()| copy.slice(place, count));
            let bits: &[AtomicU64] = bits.unwrap_or_default();
            let ended = self.ended.iter_mut().skip(first);
            let living = self.living.iter_mut().skip(first);
            for ((bits, ended), living) in bits.iter().zip(ended).zip(living) {
                match (bits.load(Relaxed), has_ended) {
                    (0, _) => {}
                    (bits, true) => ended.add(bits),
                    (bits, false) => *living |= bits,
                }
            }
            first += count.max(1);
        }
    }

    /// Whether all of the `references` to an entry are those of processes that have ended.
    pub fn have_all_ended(&self, entry: usize, references: u32) -> bool {
        let ended = self.ended.get(entry / 64);
        let ended = ended.map_or(0, |counts| counts.of(entry));
        let living = self.living.get(entry / 64);
        let lives = living.is_some_and(|bits| bits >> (entry % 64) & 1 == 1);
        ended > 0 && !lives && references <= ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_shm::{Access, Region};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    #[test]
    fn counts_have_digits() {
        let mut counts = Counts::default();
        for round in 0..HOLDERS {
            counts.add(u64::from(round < 5) << 63 | 1);
        }
        let of = |entry| counts.of(entry);
        assert_eq!((of(0), of(1), of(63)), (512, 0, 5));
    }

    #[test]
    fn only_what_nobody_alive_holds_is_gone() {
        const ENTRIES: usize = 300;
        let (file, size) = netchannel_service::memory::program_region(300).unwrap();
        let region = Region::map(file.as_raw_fd(), size, Access::ReadWrite).unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let here = u64::from(*OWN_NAMESPACE) << 32;
        let processes = [
            (0, here | u64::from(gone.id()), [70, 71, 72]),
            (3, here | u64::from(gone.id()), [70, 299, 299]),
            (4, here | u64::from(std::process::id()), [71, 1, 1]),
            // Of another namespace nobody knows.
            (511, u64::from(gone.id()), [72, 2, 2]),
        ];
        for (index, process, held) in processes {
            let record: &Holder = region.at(program::holder(ENTRIES, index)).unwrap();
            record.process.store(process, Relaxed);
            for entry in held {
                let word = program::held(ENTRIES, index, entry);
                let word = region.at::<AtomicU64>(word).unwrap();
                word.fetch_or(1 << (entry % 64), Relaxed);
            }
        }
        let outside = Outside::admit(file.as_raw_fd(), size).unwrap();
        for turn in [Duration::ZERO, Duration::from_secs(60)] {
            let mut holders = ProcessRegistry::new(ENTRIES, u32::MAX);
            let mut copy = Snapshot::new(4096);
            while !holders.run_turn(&outside, &mut copy, &Turn::of(turn)) {}
            assert!(holders.have_all_ended(70, 2), "both have ended");
            assert!(!holders.have_all_ended(70, 3), "somebody else has it");
            assert!(!holders.have_all_ended(71, 2), "one lives");
            assert!(!holders.have_all_ended(72, 1), "one may live");
            assert!(holders.have_all_ended(299, 1));
            assert!(!holders.have_all_ended(5, 0), "nobody ever had it");
        }
    }
}
