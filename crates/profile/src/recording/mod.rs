//! The samples, gathered while they arrive: each different chain once, with its number of samples in each thread.

mod kernel_symbols;
mod modules;
mod processes;
mod user_symbols;

pub use kernel_symbols::KernelSymbols;
pub use modules::{Module, Modules};
pub use user_symbols::{Line, UserSymbols};

use crate::events::{Map, Record, Sample, What};
use netchannel_taxonomy::Side;
use perf_event_open_sys::bindings::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER};
use processes::Processes;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Addresses from this one on are the kernel's marks of the context of the following ones.
const MARKS: u64 = 0_u64.wrapping_sub(4095);

/// One function call of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// In the kernel, by its place among the symbols; none where it is not known.
    Kernel(Option<u32>),
    /// In a module of a program; none where no code is mapped.
    User(Option<(u32, u64)>),
}

/// A thread that was sampled, while it executed one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The name of its process.
    pub program: String,
}

/// The place and the thread of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its place among [`Recording::chains`].
    pub chain: u32,
    /// Its place among [`Recording::threads`].
    pub thread: u32,
    /// The side whose processor it was on, where processors were given.
    pub side: Option<Side>,
}

/// The processors of each side, where they were given.
#[derive(Clone, Debug, Default)]
pub struct Pinned {
    /// The processors of the sender.
    pub sender: Vec<u32>,
    /// The processors of the receiver.
    pub receiver: Vec<u32>,
}

impl Pinned {
    fn side(&self, processor: u32) -> Option<Side> {
        if self.sender.contains(&processor) {
            Some(Side::Sender)
        } else if self.receiver.contains(&processor) {
            Some(Side::Receiver)
        } else {
            None
        }
    }
}

/// All that was sampled.
#[derive(Debug)]
pub struct Recording {
    kernel: Rc<KernelSymbols>,
    processes: Processes,
    modules: Modules,
    pinned: Pinned,
    /// The processes that are recorded; none: all.
    only: Option<HashSet<u32>>,
    frames: Vec<Frame>,
    /// The numbers of the kernel's functions among the frames, by their place among the symbols: most frames are of those.
    of_kernel: Vec<Option<u32>>,
    numbers: HashMap<Frame, u32>,
    chains: Vec<Rc<[u32]>>,
    places: HashMap<Rc<[u32]>, u32>,
    counts: HashMap<Key, u64>,
    lost: u64,
    chain: Vec<u32>,
}

impl Recording {
    /// Begins one.
    #[must_use]
    pub fn new(kernel: Rc<KernelSymbols>, pinned: Pinned) -> Self {
        Self {
            kernel,
            processes: Processes::default(),
            modules: Modules::default(),
            pinned,
            only: None,
            frames: Vec::new(),
            of_kernel: Vec::new(),
            numbers: HashMap::new(),
            chains: Vec::new(),
            places: HashMap::new(),
            counts: HashMap::new(),
            lost: 0,
            chain: Vec::new(),
        }
    }

    /// Records only this process, and what it starts from now on.
    pub fn only(&mut self, pid: u32) {
        self.only = Some(HashSet::from([pid]));
    }

    /// Whether a record is of a process that is recorded.
    fn is_wanted(&mut self, what: &What) -> bool {
        let Some(only) = &mut self.only else {
            return true;
        };
        match what {
            What::Sample(Sample { pid, .. })
            | What::Map(Map { pid, .. })
            | What::Name { pid, .. } => only.contains(pid),
            What::Fork { pid, parent, .. } => {
                let is_of_one = only.contains(parent);
                if is_of_one {
                    only.insert(*pid);
                }
                is_of_one
            }
            What::Lost(_) => true,
        }
    }

    /// Handles the next record.
    pub fn on_record(&mut self, record: Record) {
        if !self.is_wanted(&record.what) {
            return;
        }
        match record.what {
            What::Sample(sample) => self.on_sample(&sample),
            What::Map(map) => self.processes.on_map(&map, &mut self.modules),
            What::Name {
                pid,
                tid,
                name,
                is_exec,
            } => self.processes.on_name(pid, tid, name, is_exec),
            What::Fork { pid, tid, parent } => self.processes.on_fork(pid, tid, parent),
            What::Lost(count) => self.lost += count,
        }
    }

    fn on_sample(&mut self, sample: &Sample) {
        self.processes.discover(sample.pid, &mut self.modules);
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        let mut is_kernel = false;
        let mut is_first_of_user = true;
        for address in &sample.chain {
            if *address >= MARKS {
                is_kernel = *address == PERF_CONTEXT_KERNEL;
                if !is_kernel && *address != PERF_CONTEXT_USER {
                    break;
                }
                continue;
            }
            // All but the innermost are where a call returns to, which may be the next function already.
            let address = address.saturating_sub(u64::from(!chain.is_empty()));
            let frame = if is_kernel {
                Frame::Kernel(self.kernel.find(address))
            } else {
                let place = self.processes.find(sample.pid, address);
                // An address outside of code is no return address: the chain is broken.
                if place.is_none() && !is_first_of_user {
                    break;
                }
                is_first_of_user = false;
                Frame::User(place)
            };
            chain.push(self.number(frame));
        }
        let key = Key {
            chain: self.place(&chain),
            thread: self.processes.thread(sample.pid, sample.tid),
            side: self.pinned.side(sample.processor),
        };
        *self.counts.entry(key).or_default() += 1;
        self.chain = chain;
    }

    fn number(&mut self, frame: Frame) -> u32 {
        let Frame::Kernel(Some(function)) = frame else {
            return self.number_by_hash(frame);
        };
        let place = usize::try_from(function).unwrap_or(usize::MAX);
        if let Some(Some(number)) = self.of_kernel.get(place) {
            return *number;
        }
        let number = self.number_by_hash(frame);
        if place >= self.of_kernel.len() {
            self.of_kernel.resize(place.saturating_add(1), None);
        }
        if let Some(known) = self.of_kernel.get_mut(place) {
            *known = Some(number);
        }
        number
    }

    fn number_by_hash(&mut self, frame: Frame) -> u32 {
        *self.numbers.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            last(self.frames.len())
        })
    }

    fn place(&mut self, chain: &[u32]) -> u32 {
        if let Some(place) = self.places.get(chain) {
            return *place;
        }
        let chain: Rc<[u32]> = chain.into();
        self.chains.push(Rc::clone(&chain));
        let place = last(self.chains.len());
        self.places.insert(chain, place);
        place
    }

    /// The symbols of the kernel.
    #[must_use]
    pub fn kernel(&self) -> &KernelSymbols {
        &self.kernel
    }

    /// The files that code came from.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// All different frames.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// All different chains, as indices of frames, innermost first.
    pub fn chains(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.chains.iter().map(|chain| &**chain)
    }

    /// The chain at an index.
    #[must_use]
    pub fn chain(&self, place: u32) -> &[u32] {
        let place = usize::try_from(place).ok();
        let chain = place.and_then(|place| self.chains.get(place));
        chain.map_or(&[], |chain| &**chain)
    }

    /// The threads that were sampled.
    #[must_use]
    pub fn threads(&self) -> Vec<Thread> {
        self.processes.threads()
    }

    /// The number of samples of each chain in each place.
    pub fn counts(&self) -> impl Iterator<Item = (Key, u64)> {
        self.counts.iter().map(|(key, count)| (*key, *count))
    }

    /// The number of records without room in the kernel's rings.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The index of the last element.
fn last(count: usize) -> u32 {
    u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_that_is_sampled_only_one_family_is_recorded() {
        let mut recording = Recording::new(Rc::default(), Pinned::default());
        // Numbers that no process has.
        recording.only(4_000_001);
        let fork = |pid, parent| What::Fork {
            pid,
            tid: pid,
            parent,
        };
        let sample = |pid| {
            What::Sample(Sample {
                pid,
                tid: pid,
                ..Sample::default()
            })
        };
        let family = [
            sample(4_000_001),
            fork(4_000_002, 4_000_001),
            fork(4_000_003, 4_000_002),
            sample(4_000_003),
        ];
        let others = [fork(4_000_009, 4_000_008), sample(4_000_009), sample(0)];
        for what in family.into_iter().chain(others) {
            recording.on_record(Record { time: 0, what });
        }
        let threads = recording.threads();
        let sampled: Vec<u32> = threads.iter().map(|thread| thread.pid).collect();
        assert_eq!(sampled, [4_000_001, 4_000_003]);
    }
}
