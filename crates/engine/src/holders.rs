//! Which processes of a program have ended, as its region says who holds what. What only they held is gone, though its entries are
//! still there: the survivors free them when they next look.

use netchannel_abi::program::{self, HOLDERS, Header, Holder};
use netchannel_shm::Region;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The records of a region that are in use.
#[derive(Debug)]
pub struct Holders<'a> {
    region: &'a Region,
    entries: usize,
    /// Records, each with whether its process has ended.
    used: Vec<(usize, bool)>,
}

impl<'a> Holders<'a> {
    /// Looks who lives. Processes that count in another PID namespace than the daemon do, as far as it knows.
    pub fn of(region: &'a Region, entries: usize) -> Self {
        let here = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        let here = u32::try_from(here).unwrap_or(0);
        let count = region
            .at::<Header>(0)
            .map_or(0, |header| header.holders.load(Acquire));
        let count = usize::try_from(count).unwrap_or(HOLDERS).min(HOLDERS);
        let used = (0..count).filter_map(|index| {
            let record = region.at::<Holder>(program::holder(entries, index))?;
            let name = record.process.load(Acquire);
            // A record that is taken has no such number.
            let process = Pid::from_raw(i32::try_from(name & 0xffff_ffff).ok()?)?;
            let judged = here != 0 && name >> 32 == u64::from(here);
            Some((
                index,
                judged && test_kill_process(process) == Err(Errno::SRCH),
            ))
        });
        Self {
            region,
            entries,
            used: used.collect(),
        }
    }

    /// Whether all of the `references` to an entry are those of processes that have ended.
    pub fn have_left(&self, entry: usize, references: u32) -> bool {
        let holding = self
            .used
            .iter()
            .filter(|(index, _)| self.holds(*index, entry));
        let (mut ended, mut living) = (0u32, 0u32);
        for (_, is_ended) in holding {
            *(if *is_ended { &mut ended } else { &mut living }) += 1;
        }
        ended > 0 && living == 0 && references <= ended
    }

    fn holds(&self, index: usize, entry: usize) -> bool {
        let word = program::held(self.entries, index, entry);
        let word = self.region.at::<AtomicU64>(word);
        word.is_some_and(|word| word.load(Relaxed) >> (entry % 64) & 1 == 1)
    }
}
