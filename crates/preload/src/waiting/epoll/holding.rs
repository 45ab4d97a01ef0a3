//! Members of which more has come that is held back: nobody tells when the time for it has come.

use super::{EpollSet, State};

impl EpollSet {
    /// Members whose bytes are held back no longer may have news.
    #[cold]
    pub(super) fn absorb_held(&self, state: &mut State, counts: bool) {
        for index in (0..state.holding.as_slice().len()).rev() {
            let Some(number) = state.holding.as_slice().get(index).copied() else {
                continue;
            };
            let item = state.items.get_mut(number as usize);
            let item = item.filter(|item| item.alive);
            let lane = item.as_ref().and_then(|item| item.lane());
            if lane.is_some_and(|lane| lane.held_for().is_some()) {
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

    /// For how many nanoseconds no time comes that nobody tells of, in the set and those within it.
    pub(super) fn longest(state: &State) -> i64 {
        let own = state.holding.as_slice().iter().filter_map(|number| {
            let lane = state.items.get(*number as usize)?.lane()?;
            // One whose time has come since is looked at again at once.
            Some(lane.held_for().unwrap_or(0))
        });
        let nested = state.nested.as_slice().iter().filter_map(|number| {
            let set = state.items.get(*number as usize)?.set()?;
            set.held_for()
        });
        own.chain(nested).min().unwrap_or(i64::MAX)
    }

    /// For how long who sleeps on the set may sleep; `None` for ever.
    pub fn held_for(&self) -> Option<i64> {
        let state = self.state.lock()?;
        Some(Self::longest(&state)).filter(|longest| *longest < i64::MAX)
    }
}
