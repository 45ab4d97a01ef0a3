//! Which events are opened where, and what the kernel allows.

use super::kernel::{Event, Ring};
use super::record::{Record, read_all};
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU,
    PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, HashSet};
use std::io;

/// Pages of records of one processor; with the page before them just what an ordinary user may have.
const PAGES: usize = 128;
/// A record may come into its ring a little after its time.
const LATE: u64 = 2_000_000;

/// The clock of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Cycles, counted by the processor: its interrupt comes at any time.
    Cycles,
    /// The kernel's clock: where interrupts are off, the sample is late.
    Cpu,
}

impl Clock {
    /// The name that other tools use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Cpu => "cpu-clock",
        }
    }

    /// A frequency that slows no program down by more than a percent or so. A counter's interrupt takes some
    /// microseconds. One of the kernel's clock is a timer, which takes up to 40 in a virtual machine.
    #[must_use]
    pub fn usual_frequency(self) -> u64 {
        match self {
            Self::Cycles => 999,
            Self::Cpu => 199,
        }
    }
}

/// The sampled processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Of everybody, also of the kernel's own threads.
    System,
    /// Of what this thread executes from now on.
    Children,
    /// Of a process, with what it starts meanwhile.
    Process(u32),
}

/// Events that are open.
pub struct Sampler {
    events: Vec<Event>,
    rings: Vec<Ring>,
    /// Records after the moment up to which records are passed on.
    pending: Vec<Record>,
    bytes: Vec<u8>,
    clock: Clock,
    frequency: u64,
    sees_kernel: bool,
}

impl Sampler {
    /// Opens the events: cycles where available, or else the kernel's clock; with the kernel's chains where that is
    /// allowed. Without a frequency the clock's usual one is used.
    ///
    /// # Errors
    /// The refusal of the kernel that the user can remedy, where there are several.
    pub fn start(target: Target, frequency: Option<u64>, processors: &[u32]) -> io::Result<Self> {
        let mut tries = Vec::new();
        for sees_kernel in [true, false] {
            for clock in [Clock::Cycles, Clock::Cpu] {
                tries.push((clock, sees_kernel));
            }
        }
        let mut refused = None;
        for (clock, sees_kernel) in tries {
            let mut sampler = Self {
                events: Vec::new(),
                rings: Vec::new(),
                pending: Vec::new(),
                bytes: Vec::new(),
                clock,
                frequency: frequency.unwrap_or_else(|| clock.usual_frequency()),
                sees_kernel,
            };
            match sampler.open(target, processors) {
                Ok(()) => return Ok(sampler),
                Err(error) => match error.raw_os_error() {
                    // There is no such counter here: the other clock may be available.
                    Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
                        refused.get_or_insert(error);
                    }
                    // The user can remedy a missing permission, so this error is reported.
                    Some(libc::EACCES | libc::EPERM) => refused = Some(error),
                    _ => return Err(error),
                },
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
    }

    fn open(&mut self, target: Target, processors: &[u32]) -> io::Result<()> {
        if matches!(target, Target::Process(_)) {
            // Each thread takes a descriptor for each processor. No process that is started here inherits the limit.
            let most = getrlimit(Resource::Nofile).maximum;
            let limit = Rlimit {
                current: most,
                maximum: most,
            };
            // An error shows up when an event is opened.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        let attributes = self.attributes(target);
        let mut opened = HashSet::new();
        let mut firsts = HashMap::new();
        // A thread that starts while the others are opened has no event yet: this repeats until there is none.
        loop {
            let threads = threads(target)?;
            let fresh: Vec<i32> = threads.filter(|thread| opened.insert(*thread)).collect();
            if fresh.is_empty() {
                break;
            }
            for thread in fresh {
                for processor in processors {
                    self.open_one(&attributes, thread, *processor, &mut firsts)?;
                }
            }
        }
        if self.events.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    }

    fn open_one(
        &mut self,
        attributes: &perf_event_attr,
        thread: i32,
        processor: u32,
        firsts: &mut HashMap<u32, usize>,
    ) -> io::Result<()> {
        let number = i32::try_from(processor).map_err(io::Error::other)?;
        let event = match Event::open(attributes, thread, number) {
            // The thread has ended, or the processor was removed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            result => result?,
        };
        let first = firsts
            .get(&processor)
            .and_then(|first| self.events.get(*first));
        match first {
            Some(first) => event.redirect(first)?,
            None => {
                self.rings.push(Ring::map(&event, PAGES)?);
                firsts.insert(processor, self.events.len());
            }
        }
        self.events.push(event);
        Ok(())
    }

    fn attributes(&self, target: Target) -> perf_event_attr {
        let mut attributes = perf_event_attr {
            size: u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0),
            sample_type: u64::from(
                PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN,
            ),
            clockid: libc::CLOCK_MONOTONIC,
            ..perf_event_attr::default()
        };
        match self.clock {
            Clock::Cycles => {
                attributes.type_ = PERF_TYPE_HARDWARE;
                attributes.config = u64::from(PERF_COUNT_HW_CPU_CYCLES);
                attributes.set_freq(1);
                attributes.sample_freq = self.frequency;
            }
            Clock::Cpu => {
                attributes.type_ = PERF_TYPE_SOFTWARE;
                attributes.config = u64::from(PERF_COUNT_SW_CPU_CLOCK);
                attributes.sample_period = 1_000_000_000 / self.frequency.max(1);
            }
        }
        attributes.set_use_clockid(1);
        attributes.set_sample_id_all(1);
        attributes.set_exclude_kernel(u64::from(!self.sees_kernel));
        attributes.set_exclude_hv(1);
        attributes.set_mmap(1);
        attributes.set_mmap2(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_task(1);
        attributes.set_inherit(u64::from(target != Target::System));
        let waits = u64::from(target == Target::Children);
        attributes.set_disabled(waits);
        attributes.set_enable_on_exec(waits);
        attributes
    }

    /// The clock of samples.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Samples of a busy processor in a second.
    #[must_use]
    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Whether the kernel's part is seen.
    #[must_use]
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Tells the records of all processors that came until now, in order of time.
    pub fn poll(&mut self, each: impl FnMut(Record)) {
        let until = monotonic().saturating_sub(LATE);
        self.tell(until, each);
    }

    /// Stops the events, and passes on the remaining records.
    pub fn finish(mut self, each: impl FnMut(Record)) {
        for event in &self.events {
            event.disable();
        }
        self.tell(u64::MAX, each);
    }

    fn tell(&mut self, until: u64, each: impl FnMut(Record)) {
        for ring in &self.rings {
            self.bytes.clear();
            ring.take(&mut self.bytes);
            read_all(&self.bytes, |record| self.pending.push(record));
        }
        // Stable: records of one processor and moment stay in their order.
        self.pending.sort_by_key(|record| record.time);
        let ready = self.pending.partition_point(|record| record.time <= until);
        self.pending.drain(..ready).for_each(each);
    }
}

/// The threads that events are opened for: -1 is all of them, 0 this one.
fn threads(target: Target) -> io::Result<impl Iterator<Item = i32>> {
    let list = match target {
        Target::System => vec![-1],
        Target::Children => vec![0],
        Target::Process(pid) => {
            let mut list = Vec::new();
            // A missing directory means that the process has ended.
            let entries = std::fs::read_dir(format!("/proc/{pid}/task"))
                .map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
            for entry in entries {
                list.extend(
                    entry?
                        .file_name()
                        .to_str()
                        .and_then(|name| name.parse::<i32>().ok()),
                );
            }
            list
        }
    };
    Ok(list.into_iter())
}

/// Nanoseconds of the clock that records are stamped with.
#[must_use]
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
