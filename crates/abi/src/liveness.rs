//! When a connection whose other host says nothing counts as lost: keep-alive and the user timeout, as a program sets them.
//!
//! ```text
//!  setsockopt --> options of the socket --> Side::liveness --> the stack's socket
//! ```

/// Bits of an interval in seconds: the kernel takes at most 32767.
const SECONDS: u64 = (1 << 15) - 1;
/// Bits of the number of probes: the kernel takes at most 127.
const PROBES: u64 = (1 << 7) - 1;
/// Bits of the user timeout.
const TIMEOUT: u64 = (1 << 26) - 1;

/// What a program has set; 0 where it has set nothing.
///
/// ```text
///  63             38 37      31 30          16 15        1      0
///  TCP_USER_TIMEOUT   KEEPCNT    KEEPINTVL      KEEPIDLE   SO_KEEPALIVE
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Liveness {
    /// `SO_KEEPALIVE`.
    pub keep_alive: bool,
    /// `TCP_KEEPIDLE`: seconds of silence before the first probe.
    pub idle: u32,
    /// `TCP_KEEPINTVL`: seconds between probes.
    pub interval: u32,
    /// `TCP_KEEPCNT`: probes without an answer after which the connection is lost.
    pub probes: u32,
    /// `TCP_USER_TIMEOUT`: milliseconds for which sent bytes may be unacknowledged. In the word at most 18 hours.
    pub user_timeout: u32,
}

impl Liveness {
    /// The word in shared memory.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let within = |value: u32, most: u64| u64::from(value).min(most);
        u64::from(self.keep_alive)
            | within(self.idle, SECONDS) << 1
            | within(self.interval, SECONDS) << 16
            | within(self.probes, PROBES) << 31
            | within(self.user_timeout, TIMEOUT) << 38
    }

    /// Reads a word. Any word gives values that the kernel takes.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        // Each mask has less than 32 bits.
        let part = |shift: u32, mask: u64| u32::try_from(word >> shift & mask).unwrap_or(0);
        Self {
            keep_alive: word & 1 != 0,
            idle: part(1, SECONDS),
            interval: part(16, SECONDS),
            probes: part(31, PROBES),
            user_timeout: part(38, TIMEOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_what_was_set() {
        let set = Liveness {
            keep_alive: true,
            idle: 300,
            interval: 32767,
            probes: 3,
            user_timeout: 30_000,
        };
        assert_eq!(Liveness::from_word(set.to_word()), set);
        assert_eq!(Liveness::default().to_word(), 0);
        assert_eq!(set.to_word() & 0xffff, 1 | 300 << 1);
    }

    #[test]
    fn any_word_is_within_the_kernels_bounds() {
        let most = Liveness::from_word(u64::MAX);
        assert_eq!((most.idle, most.interval, most.probes), (32767, 32767, 127));
        let beyond = Liveness {
            user_timeout: u32::MAX,
            ..Liveness::default()
        };
        assert_eq!(
            Liveness::from_word(beyond.to_word()).user_timeout,
            (1 << 26) - 1
        );
    }
}
