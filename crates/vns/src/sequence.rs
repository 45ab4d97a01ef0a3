//! Sequences of the wire as offsets from the start of their stream, so that the code inside needs no wrap-around.

/// No stream gets this long: a sequence that seems further away is before the start.
const FARTHEST: u64 = 1 << 63;

/// The sequence of a stream's first byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(pub(crate) u64);

impl Origin {
    /// The sequence of the byte at `offset`.
    pub(crate) const fn sequence(self, offset: u64) -> u64 {
        self.0.wrapping_add(offset)
    }

    /// The distance of `sequence` from the start; `None` if it is before the start.
    pub(crate) const fn offset(self, sequence: u64) -> Option<u64> {
        let offset = sequence.wrapping_sub(self.0);
        if offset < FARTHEST {
            Some(offset)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_the_wrap() {
        for start in [0, 1, u64::MAX, u64::MAX - 10, 1 << 63] {
            let origin = Origin(start);
            for offset in [0, 1, 11, 1 << 40] {
                assert_eq!(origin.offset(origin.sequence(offset)), Some(offset));
            }
            assert_eq!(origin.offset(start.wrapping_sub(1)), None);
            assert_eq!(origin.offset(start.wrapping_add(1 << 63)), None);
        }
    }
}
