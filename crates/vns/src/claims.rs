//! Places of a ring to which workers write, or from which they read, at this moment.
//!
//! **Claims.** A worker learns under the lock where bytes belong, and writes them outside of it, perhaps slowly.
//! Meanwhile the same bytes may come over another channel and be read by the program. Their place in the ring may then
//! belong to later bytes, which the slow worker would overwrite. So the window does not open so far that a claimed
//! place could be used again.
//!
//! **Holds.** A worker assigns bytes to a channel under the lock and takes them from the ring outside of it, perhaps
//! late. Meanwhile a copy on another channel may be acknowledged, and the program may write other bytes in their place.
//! So bytes are not returned to the program before every hold on them, or on bytes before them, is released.

/// The limit of places that are claimed at one time, and of those that are held. A segment beyond it is dropped.
pub const MOST_CLAIMS: usize = 64;

/// The right to write to a place. It ends with [`crate::VirtualSocket::finish`]. A claim that is lost keeps the window
/// from opening.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Claim(usize);

/// The right to read sent bytes that may be acknowledged meanwhile. It ends with [`crate::VirtualSocket::release`]. A
/// hold that is lost keeps the program's ring from being used again.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Hold(pub(crate) Claim);

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    end: u64,
}

/// A place without a claim.
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
    /// Claims `[start, end)`, unless too many places are claimed.
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

    /// The part of `[start, end)` within the claim. Where the beginning of the claim was written, the claim shrinks.
    pub(crate) fn written(&mut self, claim: &Claim, start: u64, end: u64) -> Option<(u64, u64)> {
        let place = self.places.get_mut(claim.0)?;
        let (start, end) = (start.max(place.start), end.min(place.end));
        if place.start == u64::MAX || start >= end {
            return None;
        }
        if start == place.start {
            // At most up to its end: a claim exists until it is finished.
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

    /// The lowest byte that a worker may still write.
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
