//! The class that a program gives a socket: latency (L) or throughput (T).
//!
//! ```text
//!  setsockopt, netchannel run --class --> SocketEntry::hints --> Side::hints --> the sender of its traffic
//! ```

/// Level of `setsockopt` for the options of NetChannel. The kernel knows no such level: without the library they fail
/// with `ENOPROTOOPT` and nothing happens.
pub const SOL_NETCHANNEL: i32 = 0x4e43;
/// Option of [`SOL_NETCHANNEL`]: an int, [`NONE`], [`LATENCY`] or [`THROUGHPUT`].
pub const SO_APP_TYPE: i32 = 1;

/// Environment variable of a program that `netchannel run --class` started: `latency` or `throughput`.
pub const VARIABLE: &str = "NETCHANNEL_CLASS";

/// No class was given.
pub const NONE: u8 = 0;
/// Few bytes that must arrive soon.
pub const LATENCY: u8 = 1;
/// Many bytes.
pub const THROUGHPUT: u8 = 2;

/// All hints about the class of one socket.
///
/// ```text
///  31        16 15      8 7   4 3   2 1      0
///  SO_PRIORITY    DSCP      0    run   option
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// From [`SO_APP_TYPE`].
    pub option: u8,
    /// From `netchannel run --class`.
    pub run: u8,
    /// The upper six bits of `IP_TOS` or `IPV6_TCLASS`.
    pub dscp: u8,
    /// `SO_PRIORITY`; larger values are all ones.
    pub priority: u16,
}

impl Hints {
    /// The word in shared memory.
    #[must_use]
    pub const fn to_word(self) -> u32 {
        self.option as u32 & 3
            | (self.run as u32 & 3) << 2
            | (self.dscp as u32 & 63) << 8
            | (self.priority as u32) << 16
    }

    /// Reads a word. Any word gives some hints, each within its bounds.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        let [low, dscp, priority_low, priority_high] = word.to_le_bytes();
        Self {
            option: known(low & 3),
            run: known(low >> 2 & 3),
            dscp: dscp & 63,
            priority: u16::from_le_bytes([priority_low, priority_high]),
        }
    }

    /// Whether the program itself asks for latency. Code points are left to modules that interpret them.
    #[must_use]
    pub const fn says_latency(self) -> bool {
        match (self.option, self.priority) {
            // The kernel's priorities 1 and 2 are filler and bulk.
            (NONE, 0) => self.run == LATENCY,
            (NONE, priority) => priority > 2,
            (option, _) => option == LATENCY,
        }
    }
}

const fn known(code: u8) -> u8 {
    if code > THROUGHPUT { NONE } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_what_was_said() {
        let hints = Hints {
            option: LATENCY,
            run: THROUGHPUT,
            dscp: 46,
            priority: 0x1234,
        };
        assert_eq!(hints.to_word(), 0x1234_2e09);
        assert_eq!(Hints::from_word(hints.to_word()), hints);
        assert_eq!(Hints::from_word(0), Hints::default());
    }

    #[test]
    fn the_most_particular_word_says_whether_it_is_latency() {
        let says = |option, priority, run| {
            let hints = Hints {
                option,
                run,
                dscp: 46,
                priority,
            };
            hints.says_latency()
        };
        assert!(says(LATENCY, 1, THROUGHPUT) && says(NONE, 6, THROUGHPUT));
        assert!(says(NONE, 0, LATENCY) && !says(NONE, 0, NONE));
        assert!(!says(THROUGHPUT, 6, LATENCY) && !says(NONE, 2, LATENCY));
    }

    #[test]
    fn any_word_is_within_bounds() {
        let hints = Hints::from_word(u32::MAX);
        assert_eq!((hints.option, hints.run, hints.dscp), (NONE, NONE, 63));
    }
}
