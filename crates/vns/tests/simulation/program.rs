//! A program and its two rings: it writes, reads, ends, and looks at every byte.

use std::fmt;

use netchannel_vns::Linger;

use crate::random::Random;
use crate::scenario::{MILLISECOND, SECOND};

/// How a program goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Writes all, ends its direction, reads all, closes.
    Proper,
    /// Writes all and closes; the peer is told to send nothing.
    WritesOnly,
    /// Closes when it has written all, whatever comes.
    ClosesEarly,
    /// Resets after so many bytes written and read.
    Resets { after: u64 },
}

/// How it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Eager,
    Slow,
    /// Once it stops for long.
    Pauses,
}

/// Where one byte of a stream lies, what it is.
pub fn byte(stream: u64, offset: u64) -> u8 {
    let [low, high, ..] = offset.to_le_bytes();
    let [stream, ..] = stream.to_le_bytes();
    low.wrapping_mul(31) ^ high.wrapping_mul(7) ^ stream
}

/// A ring that is filled and read by offsets.
pub struct Ring(Vec<u8>);

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

impl Ring {
    pub fn new(size: u64) -> Self {
        Self(vec![0; usize::try_from(size).unwrap()])
    }

    pub fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn place(&self, offset: u64) -> usize {
        usize::try_from(offset % self.size()).unwrap()
    }

    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (offset, byte) in (offset..).zip(bytes) {
            let place = self.place(offset);
            self.0[place] = *byte;
        }
    }

    pub fn get(&self, offset: u64, length: u64) -> Vec<u8> {
        let offsets = offset..offset + length;
        offsets.map(|offset| self.0[self.place(offset)]).collect()
    }

    /// The same bytes of `[from, to)` in a larger ring.
    pub fn grow(&mut self, size: u64, from: u64, to: u64) {
        let bytes = self.get(from, to - from);
        *self = Self::new(size);
        self.put(from, &bytes);
    }
}

#[derive(Debug)]
pub struct Program {
    /// Names the streams it writes and reads.
    pub writes: u64,
    pub reads: u64,
    pub manner: Manner,
    pub pace: Pace,
    pub linger: Linger,
    /// Bytes to write in all; bytes written and read so far.
    pub total: u64,
    pub written: u64,
    pub read: u64,
    pub transmit: Ring,
    pub receive: Ring,
    pub shut: bool,
    pub closed: bool,
    /// The peer lies: its bytes are not looked at.
    pub deceived: bool,
}

impl Program {
    /// When it looks again.
    pub fn next_look(&self, random: &mut Random) -> u64 {
        match self.pace {
            Pace::Eager => random.between(1000, MILLISECOND),
            Pace::Slow => random.between(MILLISECOND, 200 * MILLISECOND),
            Pace::Pauses if random.once_in(10) => random.between(SECOND, 20 * SECOND),
            Pace::Pauses => random.between(1000, 2 * MILLISECOND),
        }
    }

    /// Writes some; the ring is free up to `acknowledged` plus its size.
    pub fn write(&mut self, acknowledged: u64, random: &mut Random) {
        let room = self.transmit.size() - (self.written - acknowledged);
        let most = room.min(self.total - self.written);
        if most == 0 {
            return;
        }
        let length = random.length(most);
        let offsets = self.written..self.written + length;
        let bytes: Vec<u8> = offsets.map(|offset| byte(self.writes, offset)).collect();
        self.transmit.put(self.written, &bytes);
        self.written += length;
    }

    /// Reads some of what is there up to `frontier`, and looks at it.
    pub fn read(&mut self, frontier: u64, random: &mut Random) {
        let most = frontier - self.read;
        assert!(most <= self.receive.size(), "more than the ring holds");
        if most == 0 {
            return;
        }
        let length = match self.pace {
            Pace::Slow => random.length(most),
            _ => most,
        };
        let bytes = self.receive.get(self.read, length);
        if !self.deceived {
            for (offset, got) in (self.read..).zip(bytes) {
                assert_eq!(
                    got,
                    byte(self.reads, offset),
                    "byte {offset} of stream {}",
                    self.reads
                );
            }
        }
        self.read += length;
    }
}
