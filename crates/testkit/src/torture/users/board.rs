//! State that the processes of a run share beside the connections under test: a file of words that all of them map.
//!
//! ```text
//!  0      the state of the run, counters
//!  64     ports on which honest servers listen: generation and user, 0 while none does
//!  128    a bit for each port that the hostile user may rightly show as its own
//!  1152   when each honest worker last got on
//!  2048   how often which time was measured: by stage, by what was measured
//! ```

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::memory;

/// The variable with which honest programs find the board's descriptor.
pub const VARIABLE: &str = "TORTURE_BOARD";

/// Ports of honest servers. The first ones listen during the whole run. The others listen now and then, and the hostile
/// user tries to get them.
pub const FIRST_PORT: u16 = 7101;
/// How many such ports there are.
pub const PORTS: usize = 12;
/// The ports of which each honest user keeps one for the whole run.
pub const LASTING: usize = 2;

const WORDS: usize = 8192;
const STATE: usize = 0;
const COUNTERS: usize = 8;
const PORT_WORDS: usize = 64;
const GRANTED: usize = 128;
const BEATS: usize = 1152;
/// The number of workers that can be watched.
pub const WORKERS: usize = 64;
const TIMES: usize = 2048;
/// Eight buckets for each power of two of nanoseconds.
const BUCKETS: usize = 512;

/// The stage of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stage {
    /// Only honest programs run.
    Alone = 0,
    /// Honest programs run beside the hostile user.
    Beside = 1,
    /// The hostile user has gone.
    After = 2,
    /// All programs are to end.
    Ending = 3,
}

/// A counted event.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Connections that carried the right bytes.
    Connections = 0,
    /// Round trips of lasting connections.
    RoundTrips = 1,
    /// Connections that no honest program made.
    Intruders = 2,
    /// Requests that the hostile user sent.
    Requests = 3,
    /// Words that it wrote into shared memory.
    Words = 4,
    /// Hostile programs that have run.
    Programs = 5,
    /// Listeners that were announced and closed behind the daemon's back.
    Squats = 6,
    /// Links that the hostile user got as a server.
    Offers = 7,
    /// Connections that the hostile user announced without the library.
    Announced = 8,
    /// Sockets of honest programs that a limit of the daemon moved to kernel TCP.
    Refused = 9,
    /// Connections that went on in a process that received them in a message.
    Passed = 10,
    /// Ends of daemons. Odd while a daemon is being replaced; state left with an ended daemon is lost.
    Ends = 11,
}

/// A measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Measure {
    /// `connect`.
    Connect = 0,
    /// A round trip on a lasting connection.
    RoundTrip = 1,
    /// The first `connect` of a program, which asks the daemon.
    First = 2,
}

/// The board.
#[derive(Clone, Copy)]
pub struct Board(&'static [AtomicU64]);

impl Board {
    /// Makes a board. Returns it with its descriptor, which children inherit.
    pub fn make() -> (Self, RawFd) {
        // SAFETY: the name is terminated.
        let file = unsafe { libc::memfd_create(c"torture-board".as_ptr(), 0) };
        let size = libc::off_t::try_from(WORDS * 8).expect("a small file");
        // SAFETY: takes integers.
        let sized = file >= 0 && unsafe { libc::ftruncate(file, size) } == 0;
        assert!(sized, "a memfd: {}", std::io::Error::last_os_error());
        (Self::of(file), file)
    }

    /// The board that this process inherited.
    pub fn inherited() -> Self {
        let number = std::env::var(VARIABLE).ok();
        let number = number.and_then(|text| text.parse().ok());
        Self::of(number.expect("TORTURE_BOARD is set by `torture users`"))
    }

    fn of(file: RawFd) -> Self {
        Self(memory::map(file, WORDS * 8, true).expect("a map of the board"))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }

    /// The stage of the run.
    pub fn stage(&self) -> Stage {
        match self.word(STATE).load(Ordering::Acquire) {
            0 => Stage::Alone,
            1 => Stage::Beside,
            2 => Stage::After,
            _ => Stage::Ending,
        }
    }

    /// Enters a stage.
    pub fn enter(&self, stage: Stage) {
        self.word(STATE).store(stage as u64, Ordering::Release);
    }

    /// Whether all programs are to end.
    pub fn is_ending(&self) -> bool {
        self.stage() == Stage::Ending
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, more: u64) {
        let word = self.word(COUNTERS + counter as usize);
        word.fetch_add(more, Ordering::Relaxed);
    }

    /// The value of a counter.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.word(COUNTERS + counter as usize)
            .load(Ordering::Relaxed)
    }

    /// The state of a port of honest servers, 0 while none listens.
    pub fn port(&self, index: usize) -> u64 {
        self.word(PORT_WORDS + index).load(Ordering::SeqCst)
    }

    /// Takes a port for a listener of an honest user. False if another user has it.
    pub fn take_port(&self, index: usize, state: u64) -> bool {
        let word = self.word(PORT_WORDS + index);
        word.compare_exchange(0, state, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Notes that the listener at a port takes no more connections.
    pub fn leave_port(&self, index: usize) {
        self.word(PORT_WORDS + index).store(0, Ordering::SeqCst);
    }

    /// Notes that the hostile user may show a port as its own.
    pub fn grant(&self, port: u16) {
        let bit = 1 << (port % 64);
        self.word(GRANTED + usize::from(port / 64))
            .fetch_or(bit, Ordering::SeqCst);
    }

    /// Whether the hostile user may show a port as its own.
    pub fn is_granted(&self, port: u16) -> bool {
        let word = self.word(GRANTED + usize::from(port / 64));
        word.load(Ordering::SeqCst) & 1 << (port % 64) != 0
    }

    /// Notes that a worker made progress. Workers above [`WORKERS`] are watched by other means.
    pub fn beat(&self, worker: usize) {
        if worker < WORKERS {
            self.word(BEATS + worker).store(now(), Ordering::Relaxed);
        }
    }

    /// Stops watching a worker.
    pub fn rest(&self, worker: usize) {
        self.word(BEATS + worker).store(0, Ordering::Relaxed);
    }

    /// The worker that has made no progress for longest, and for how long.
    pub fn slowest(&self) -> (usize, Duration) {
        let beats = self.0[BEATS..BEATS + WORKERS].iter().enumerate();
        let known = beats.map(|(worker, beat)| (worker, beat.load(Ordering::Relaxed)));
        let oldest = known
            .filter(|(_, beat)| *beat != 0)
            .min_by_key(|(_, beat)| *beat);
        oldest.map_or((0, Duration::ZERO), |(worker, beat)| {
            (worker, Duration::from_millis(now().saturating_sub(beat)))
        })
    }

    /// Records a time, in the current stage.
    pub fn measure(&self, measure: Measure, time: Duration) {
        let place = place(self.stage(), measure);
        let bucket = bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.word(place + bucket).fetch_add(1, Ordering::Relaxed);
    }

    /// The time below which `percent` of a hundred measurements lie, and the number of measurements.
    pub fn percentile(&self, stage: Stage, measure: Measure, percent: u64) -> (Duration, u64) {
        let start = place(stage, measure);
        let counts: Vec<u64> = self.0[start..start + BUCKETS]
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let all: u64 = counts.iter().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        (Duration::from_nanos(top(found.unwrap_or(0))), all)
    }
}

/// Milliseconds of the monotonic clock, which all processes share.
fn now() -> u64 {
    // SAFETY: a timespec of zeroes is valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `time` is a live output.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

fn place(stage: Stage, measure: Measure) -> usize {
    let stage = match stage {
        Stage::Alone => 0,
        Stage::Beside => 1,
        Stage::After | Stage::Ending => 2,
    };
    TIMES + (stage * 3 + measure as usize) * BUCKETS
}

fn bucket(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(8);
    let power = value.ilog2();
    let eighth = value >> (power - 3) & 7;
    usize::try_from(u64::from(power) * 8 + eighth).unwrap_or(BUCKETS - 1)
}

/// The end of a bucket.
fn top(bucket: usize) -> u64 {
    let (power, eighth) = ((bucket / 8).max(3), bucket % 8);
    let width = 1_u64 << (power - 3);
    (1 << power) + width * (eighth as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_within_an_eighth() {
        for nanoseconds in [9, 1_000, 12_345, 1 << 20, (1 << 40) + 7] {
            let top = top(bucket(nanoseconds));
            assert!(top >= nanoseconds && top - nanoseconds <= nanoseconds / 8 + 2);
        }
    }

    #[test]
    fn percentiles_are_of_a_stage() {
        let (board, _) = Board::make();
        for microseconds in 1..=100 {
            board.measure(Measure::Connect, Duration::from_micros(microseconds));
        }
        board.enter(Stage::Beside);
        board.measure(Measure::Connect, Duration::from_secs(1));
        let (time, count) = board.percentile(Stage::Alone, Measure::Connect, 50);
        assert_eq!(count, 100);
        assert!((50_000..58_000).contains(&time.as_nanos()), "{time:?}");
        let (time, count) = board.percentile(Stage::Beside, Measure::Connect, 99);
        assert!(count == 1 && time >= Duration::from_secs(1));
    }
}
