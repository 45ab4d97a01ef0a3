//! The parameters of copy workers for programs: how many there may be, and which transfers they share.
//!
//! ```text
//!  policy of the daemon --> directory::Header::copying --> libnetchannel.so, at each large transfer
//!  netchannel run --copy-workers --> environment ---------^
//! ```
//!
//! Each word is read alone and clamped to its bounds: a mix of words of two policies does no harm.

use core::sync::atomic::{AtomicU32, Ordering};

/// Environment variable of a program that `netchannel run --copy-workers` started: the number of workers, which
/// overrides the daemon's. For tests, [`Rules::least`] and [`Rules::part`] may follow, separated by commas.
pub const VARIABLE: &str = "NETCHANNEL_COPY_WORKERS";

/// Most copy workers of one program.
pub const MOST_WORKERS: u32 = 8;
/// Smallest transfer that is ever split, whatever the policy.
pub const LEAST: u32 = 64 << 10;
/// Smallest part.
pub const LEAST_PART: u32 = 4 << 10;

/// The words in shared memory. (d) all.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SharedRules {
    /// [`Rules::workers`].
    pub workers: AtomicU32,
    /// [`Rules::least`].
    pub least: AtomicU32,
    /// [`Rules::local`].
    pub local: AtomicU32,
    /// [`Rules::part`].
    pub part: AtomicU32,
    /// [`Rules::threshold`].
    pub threshold: AtomicU32,
    /// [`Rules::in_flight_send`].
    pub in_flight_send: AtomicU32,
    /// [`Rules::in_flight_receive`].
    pub in_flight_receive: AtomicU32,
}

/// When a transfer is split, and how. All but `workers` are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Copy workers that a program may have, 0 for none.
    pub workers: u32,
    /// Calls below this are copied by the caller.
    pub least: u32,
    /// Bytes that the caller copies first in any case.
    pub local: u32,
    /// The size of a part.
    pub part: u32,
    /// If each copy worker has so many bytes to copy, the callers copy a program's further transfers.
    pub threshold: u32,
    /// Bytes of one sending socket that are left to copy workers at a time.
    pub in_flight_send: u32,
    /// The same for a receiving socket.
    pub in_flight_receive: u32,
}

impl Rules {
    /// Clamps every word to its bounds.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            workers: self.workers.min(MOST_WORKERS),
            least: self.least.max(LEAST),
            part: self.part.max(LEAST_PART),
            ..self
        }
    }
}

impl SharedRules {
    /// Reads the words.
    #[must_use]
    pub fn load(&self) -> Rules {
        // Relaxed: they order nothing, see above.
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        Rules {
            workers: word(&self.workers),
            least: word(&self.least),
            local: word(&self.local),
            part: word(&self.part),
            threshold: word(&self.threshold),
            in_flight_send: word(&self.in_flight_send),
            in_flight_receive: word(&self.in_flight_receive),
        }
        .bounded()
    }

    /// Writes the words.
    pub fn store(&self, rules: &Rules) {
        let words = [
            (&self.workers, rules.workers),
            (&self.least, rules.least),
            (&self.local, rules.local),
            (&self.part, rules.part),
            (&self.threshold, rules.threshold),
            (&self.in_flight_send, rules.in_flight_send),
            (&self.in_flight_receive, rules.in_flight_receive),
        ];
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_and_cut_to_their_bounds() {
        let shared = SharedRules::default();
        assert_eq!(shared.load().workers, 0);
        let rules = Rules {
            workers: 3,
            least: 256 << 10,
            local: 62_620,
            part: 62_620,
            threshold: 640 << 10,
            in_flight_send: 751_440,
            in_flight_receive: 250_480,
        };
        shared.store(&rules);
        assert_eq!(shared.load(), rules);
        let nonsense = Rules {
            workers: u32::MAX,
            least: 0,
            part: 0,
            ..rules
        };
        shared.store(&nonsense);
        let read = shared.load();
        assert_eq!((read.workers, read.least), (MOST_WORKERS, LEAST));
        assert_eq!(read.part, LEAST_PART);
    }
}
