//! Members with bytes that are held back: no token comes when their hold expires.

use super::{EpollSet, State};

impl EpollSet {
    /// Queues the members whose hold has expired.
    #[cold]
    pub(super) fn absorb_held(&self, state: &mut State, counts: bool) {
        for index in (0..state.holding.as_slice().len()).rev() {
            let Some(number) = state.holding.as_slice().get(index).copied() else {
                continue;
            };
            let item = state.items.get_mut(number as usize);
            let item = item.filter(|item| item.alive);
            let lane = item.as_ref().and_then(|item| item.lane());
            if lane.is_some_and(|lane| lane.next_look().is_some()) {
                continue;
            }
            state.holding.remove(number);
            if let Some(item) = item {
                state.ready.push(number);
                if counts {
                    self.count(item);
                }
            }
        }
    }

    /// Nanoseconds until the next hold expires, in the set and the sets within it, and for which a thread may sleep on
    /// the latter.
    pub(super) fn longest_sleep(state: &State) -> i64 {
        let own = state.holding.as_slice().iter().filter_map(|number| {
            let lane = state.items.get(*number as usize)?.lane()?;
            // A member whose hold has expired since is looked at again at once.
            Some(lane.next_look().unwrap_or(0))
        });
        let nested = state.nested.as_slice().iter().filter_map(|number| {
            let set = state.items.get(*number as usize)?.set()?;
            set.longest()
        });
        own.chain(nested).min().unwrap_or(i64::MAX)
    }

    /// How long a thread may sleep on the set that has announced it; `None` is forever.
    pub fn longest(&self) -> Option<i64> {
        if !self.is_active() {
            return None;
        }
        let mut state = self.state.lock()?;
        let (news, most) = self.longest_unwoken(&mut state);
        if news {
            return Some(0);
        }
        let longest = most.min(Self::longest_sleep(&state));
        Some(longest).filter(|longest| *longest < i64::MAX)
    }
}
