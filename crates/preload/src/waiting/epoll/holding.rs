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
            let item = state.items.get(*number as usize)?;
            // No news of a set that is not to be reported would end the wait.
            let (news, most) = item.set().filter(|_| item.is_due())?.longest();
            let looks = news && item.must_report(&item.snapshot());
            Some(if looks { 0 } else { most })
        });
        own.chain(nested).min().unwrap_or(i64::MAX)
    }

    /// For a thread that has announced its sleep on the set: whether a member has news from before, and how many
    /// nanoseconds the thread may sleep.
    pub fn longest(&self) -> (bool, i64) {
        if !self.is_active() {
            return (false, i64::MAX);
        }
        let Some(mut state) = self.state.lock() else {
            return (false, i64::MAX);
        };
        let (news, most) = self.longest_unwoken(&mut state);
        (news, most.min(Self::longest_sleep(&state)))
    }
}
