//! What a stack has done for a tenant, in memory that the stack writes and the daemon reads.

use netchannel_service::memory;
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter. The values are the positions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Connections there are.
    Open,
    /// Connections that programs made.
    Dialed,
    /// Connections that came in at published ports.
    Accepted,
    /// Destinations that `reach` does not hold.
    Denied,
    /// Connections refused because the tenant had as many as it may.
    OverLimit,
    /// Bytes to the network.
    BytesOut,
    /// Bytes from the network.
    BytesIn,
    /// Turns that its connections had.
    Turns,
    /// Nanoseconds of processor time that these took.
    Nanoseconds,
    /// Descriptors that the stack holds for it.
    Descriptors,
    /// Of those open, connections over channels.
    OpenOverChannels,
    /// Of those dialed, connections over channels.
    DialedOverChannels,
    /// Of those accepted, connections over channels.
    AcceptedOverChannels,
    /// Of the bytes sent, those over channels.
    BytesOutOverChannels,
    /// Of the bytes received, those over channels.
    BytesInOverChannels,
    /// Connections that were to go over channels, and went over kernel TCP.
    FellBack,
}

/// How many there are.
const COUNT: usize = Counter::FellBack as usize + 1;
const SIZE: usize = 4096;

/// The counters of one session. One thread writes; relaxed, all: each word is read alone.
#[derive(Debug)]
pub struct Counters(Region);

/// The values of [`Counters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// As [`Counter::Open`].
    pub open: u64,
    /// As [`Counter::Dialed`].
    pub dialed: u64,
    /// As [`Counter::Accepted`].
    pub accepted: u64,
    /// As [`Counter::Denied`].
    pub denied: u64,
    /// As [`Counter::OverLimit`].
    pub over_limit: u64,
    /// As [`Counter::BytesOut`].
    pub bytes_out: u64,
    /// As [`Counter::BytesIn`].
    pub bytes_in: u64,
    /// As [`Counter::Turns`].
    pub turns: u64,
    /// As [`Counter::Nanoseconds`].
    pub nanoseconds: u64,
    /// As [`Counter::Descriptors`].
    pub descriptors: u64,
    /// As [`Counter::OpenOverChannels`].
    pub open_over_channels: u64,
    /// As [`Counter::DialedOverChannels`].
    pub dialed_over_channels: u64,
    /// As [`Counter::AcceptedOverChannels`].
    pub accepted_over_channels: u64,
    /// As [`Counter::BytesOutOverChannels`].
    pub bytes_out_over_channels: u64,
    /// As [`Counter::BytesInOverChannels`].
    pub bytes_in_over_channels: u64,
    /// As [`Counter::FellBack`].
    pub fell_back: u64,
}

impl Counters {
    /// New ones, all zero, and their memory for the other side.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let (memory, region) = memory::create(c"netchannel-counters", SIZE)?;
        Ok((Self(region), memory))
    }

    /// Those of the other side.
    ///
    /// # Errors
    /// When this is no memory of that kind.
    pub fn of(memory: &OwnedFd) -> Result<Self, Errno> {
        let region = Region::map(memory.as_raw_fd(), SIZE, Access::ReadWrite);
        region.map(Self).map_err(memory::errno)
    }

    #[inline]
    fn word(&self, counter: Counter) -> Option<&AtomicU64> {
        self.0.at(counter as usize * size_of::<AtomicU64>())
    }

    /// Adds to a counter that no other thread writes.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        if let Some(word) = self.word(counter) {
            word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
        }
    }

    /// Sets a counter.
    #[inline]
    pub fn set(&self, counter: Counter, count: u64) {
        if let Some(word) = self.word(counter) {
            word.store(count, Relaxed);
        }
    }

    /// The values now.
    #[must_use]
    pub fn now(&self) -> Counts {
        let get = |counter| self.word(counter).map_or(0, |word| word.load(Relaxed));
        Counts {
            open: get(Counter::Open),
            dialed: get(Counter::Dialed),
            accepted: get(Counter::Accepted),
            denied: get(Counter::Denied),
            over_limit: get(Counter::OverLimit),
            bytes_out: get(Counter::BytesOut),
            bytes_in: get(Counter::BytesIn),
            turns: get(Counter::Turns),
            nanoseconds: get(Counter::Nanoseconds),
            descriptors: get(Counter::Descriptors),
            open_over_channels: get(Counter::OpenOverChannels),
            dialed_over_channels: get(Counter::DialedOverChannels),
            accepted_over_channels: get(Counter::AcceptedOverChannels),
            bytes_out_over_channels: get(Counter::BytesOutOverChannels),
            bytes_in_over_channels: get(Counter::BytesInOverChannels),
            fell_back: get(Counter::FellBack),
        }
    }
}

const _: () = assert!(COUNT * size_of::<AtomicU64>() <= SIZE);

impl Counts {
    /// Both together, as of one session after another.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            open: self.open.wrapping_add(other.open),
            dialed: self.dialed.wrapping_add(other.dialed),
            accepted: self.accepted.wrapping_add(other.accepted),
            denied: self.denied.wrapping_add(other.denied),
            over_limit: self.over_limit.wrapping_add(other.over_limit),
            bytes_out: self.bytes_out.wrapping_add(other.bytes_out),
            bytes_in: self.bytes_in.wrapping_add(other.bytes_in),
            turns: self.turns.wrapping_add(other.turns),
            nanoseconds: self.nanoseconds.wrapping_add(other.nanoseconds),
            descriptors: self.descriptors.wrapping_add(other.descriptors),
            open_over_channels: self
                .open_over_channels
                .wrapping_add(other.open_over_channels),
            dialed_over_channels: self
                .dialed_over_channels
                .wrapping_add(other.dialed_over_channels),
            accepted_over_channels: self
                .accepted_over_channels
                .wrapping_add(other.accepted_over_channels),
            bytes_out_over_channels: self
                .bytes_out_over_channels
                .wrapping_add(other.bytes_out_over_channels),
            bytes_in_over_channels: self
                .bytes_in_over_channels
                .wrapping_add(other.bytes_in_over_channels),
            fell_back: self.fell_back.wrapping_add(other.fell_back),
        }
    }

    /// What remains of a session that has ended.
    #[must_use]
    pub const fn of_the_past(self) -> Self {
        Self {
            open: 0,
            descriptors: 0,
            open_over_channels: 0,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_sees_what_is_counted() {
        let (own, memory) = Counters::new().unwrap();
        let other = Counters::of(&memory).unwrap();
        other.add(Counter::BytesIn, 5);
        other.add(Counter::BytesIn, 6);
        other.set(Counter::Open, 3);
        other.set(Counter::Descriptors, 8);
        let now = own.now();
        assert_eq!((now.bytes_in, now.open, now.descriptors), (11, 3, 8));
        let past = now.of_the_past().plus(now);
        assert_eq!((past.bytes_in, past.open, past.descriptors), (22, 3, 8));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Counters::of(&file.into()).is_err());
    }
}
