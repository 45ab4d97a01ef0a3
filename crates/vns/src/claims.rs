//! Places of a ring that workers write to or read from at this moment.
//!
//! **Claims.** A worker learns where bytes belong under the lock and writes them outside of it, perhaps slowly. Meanwhile the same bytes may come
//! by another channel, be read by the program, and their place in the ring be given to later bytes, which the slow worker would then
//! overwrite. So the window does not open beyond what leaves every claimed place alone.
//!
//! **Holds.** A worker commits bytes to a channel under the lock and takes them from the ring outside of it, perhaps late. Meanwhile
//! a copy on another channel may be acknowledged, and the program write others in their place. So bytes are not given back to the
//! program before every hold on them, or on bytes before them, is released.

/// Places that can be claimed, and held, at one time; a segment beyond that is dropped.
pub const MOST_CLAIMS: usize = 64;

/// The right to write to a place. Ends with [`crate::VirtualSocket::finish`]; one that is lost keeps the window from opening.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Claim(usize);

/// The right to read what was sent and may be acknowledged meanwhile. Ends with [`crate::VirtualSocket::release`]; one that is lost
/// keeps the program's ring from being used again.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Hold(pub(crate) Claim);

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    end: u64,
}

/// A place that is not claimed.
const FREE: Place = Place {
    start: u64::MAX,
    end: u64::MAX,
};

#[derive(Debug, Default)]
pub(crate) struct Claims {
    places: Vec<Place>,
    held: usize,
}

impl Claims {
    /// Claims `[start, end)`, unless too many are held.
    pub(crate) fn take(&mut self, start: u64, end: u64) -> Option<Claim> {
        let place = Place { start, end };
        let free = self.places.iter().position(|place| place.start == u64::MAX);
        let index = match free {
            Some(index) => {
                self.places[index] = place;
                index
            }
            None if self.places.len() < MOST_CLAIMS => {
                self.places.push(place);
                self.places.len() - 1
            }
            None => return None,
        };
        self.held += 1;
        Some(Claim(index))
    }

    /// What of `[start, end)` lies within the claim. A beginning that was written is claimed no longer.
    pub(crate) fn written(&mut self, claim: &Claim, start: u64, end: u64) -> Option<(u64, u64)> {
        let place = self.places.get_mut(claim.0)?;
        let (start, end) = (start.max(place.start), end.min(place.end));
        if place.start == u64::MAX || start >= end {
            return None;
        }
        if start == place.start {
            // Never past the end: a claim stays held until it is finished.
            place.start = end;
        }
        Some((start, end))
    }

    pub(crate) fn finish(&mut self, claim: Claim) {
        if let Some(place) = self.places.get_mut(claim.0)
            && place.start != u64::MAX
        {
            *place = FREE;
            self.held -= 1;
        }
    }

    /// The lowest byte that somebody may still write.
    pub(crate) fn lowest(&self) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        let starts = self.places.iter().map(|place| place.start);
        starts.min().filter(|start| *start != u64::MAX)
    }

    pub(crate) const fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_claimed_byte_is_known() {
        let mut claims = Claims::default();
        assert_eq!(claims.lowest(), None);
        let first = claims.take(10, 20).unwrap();
        let second = claims.take(10, 30).unwrap();
        assert_eq!(claims.written(&first, 0, 15), Some((10, 15)));
        assert_eq!(claims.lowest(), Some(10));
        claims.finish(second);
        assert_eq!(claims.lowest(), Some(15));
        assert_eq!(claims.written(&first, 15, 99), Some((15, 20)));
        assert_eq!(claims.written(&first, 15, 20), None);
        assert_eq!(claims.held(), 1);
        claims.finish(first);
        assert_eq!(claims.lowest(), None);

        let later_part_first = claims.take(10, 20).unwrap();
        assert_eq!(claims.written(&later_part_first, 15, 20), Some((15, 20)));
        assert_eq!(claims.lowest(), Some(10));
    }

    #[test]
    fn claims_are_bounded_and_used_again() {
        let mut claims = Claims::default();
        let mut held: Vec<Claim> = (0..MOST_CLAIMS as u64)
            .map(|start| claims.take(start, start + 1).unwrap())
            .collect();
        assert_eq!(claims.take(1000, 1001), None);
        claims.finish(held.remove(0));
        assert_eq!(claims.lowest(), Some(1));
        assert!(claims.take(1000, 1001).is_some());
    }
}
