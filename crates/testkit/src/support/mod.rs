//! The tools with which cases are written: pairs of sockets, children, batons, deadlines.
//!
//! Any failure panics. The panic hook of the program prints one line and ends the process with status 1, also in a
//! child and in a thread.

mod process;
mod sockets;
mod wait;

pub use process::*;
pub use sockets::*;
pub use wait::*;

use std::time::Duration;

use crate::sys::{self, Descriptor};

/// How long an event that must happen may take on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The same for `poll`.
pub const PATIENCE_MILLISECONDS: libc::c_int = 10_000;

/// How long a case watches that an event does not happen.
pub const QUIET_MILLISECONDS: libc::c_int = 40;

/// The exit status of a case that cannot run here.
pub const SKIPPED: libc::c_int = 77;

/// Ends the process as skipped.
pub fn skip(reason: &str) -> ! {
    println!("SKIP {reason}");
    std::process::exit(SKIPPED)
}

/// Bytes that differ at each position of a stream: those at `offset`, `length` of them.
#[must_use]
pub fn pattern(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(pattern_byte).collect()
}

/// The byte of the pattern at one position.
#[must_use]
pub fn pattern_byte(position: usize) -> u8 {
    // A multiplication spreads the position, so that shifted or swapped blocks do not match.
    let mixed = (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[1]
}

/// Where `bytes` first differs from the pattern at `offset`.
#[must_use]
pub fn pattern_mismatch(offset: usize, bytes: &[u8]) -> Option<usize> {
    let differs = |(index, byte): (usize, &u8)| *byte != pattern_byte(offset + index);
    bytes.iter().enumerate().position(differs)
}

/// An unnamed file that holds these bytes, with its position at the start.
pub fn file_of(bytes: &[u8]) -> Descriptor {
    // SAFETY: the name is terminated.
    let file = unsafe { libc::memfd_create(c"testkit".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0, "memfd_create: {:?}", sys::last_errno());
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = sys::write(file, rest).expect("write to a file");
        rest = &rest[written..];
    }
    assert_eq!(sys::lseek(file, 0, libc::SEEK_SET), Ok(0));
    file
}

/// A small deterministic generator (splitmix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("usize fits into 64 bits");
        usize::try_from(self.number() % limit).expect("smaller than a usize")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, pattern, pattern_mismatch};

    #[test]
    fn a_shifted_or_swapped_or_repeated_block_is_noticed() {
        let bytes = pattern(1000, 4096);
        assert_eq!(pattern_mismatch(1000, &bytes), None);
        for shift in [1, 2, 64, 512, 1024] {
            let shifted = &bytes[shift..];
            assert!(
                pattern_mismatch(1000, shifted).is_some_and(|place| place < 64),
                "{shift}"
            );
        }
        let mut swapped = bytes.clone();
        swapped.swap(7, 9);
        assert_eq!(pattern_mismatch(1000, &swapped), Some(7));
        let repeated = [&bytes[..256], &bytes[..256]].concat();
        assert!(pattern_mismatch(1000, &repeated).is_some_and(|place| place >= 256));
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let mut one = Random::new(7);
        let mut same = one.clone();
        let mut other = Random::new(8);
        let numbers: Vec<u64> = (0..100).map(|_| one.number()).collect();
        assert!(numbers.iter().all(|number| *number == same.number()));
        assert!(numbers.iter().any(|number| *number != other.number()));
        assert!(
            (0..1000)
                .map(|_| one.between(3, 5))
                .all(|number| (3..=5).contains(&number))
        );
    }
}
