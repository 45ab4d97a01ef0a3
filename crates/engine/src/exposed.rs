//! Listeners that are proved repeatedly, and the time of the next proof.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often listeners are proved to which programs of other users have links.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Listeners that may be closed without a message to the daemon, at the expense of another user.
#[derive(Debug, Default)]
pub struct Exposed {
    pub(super) listeners: BTreeSet<u32>,
    pub(super) due: Option<Instant>,
}

impl Exposed {
    /// A program of another user may have a link to a holder.
    pub fn add(&mut self, listener: u32) {
        self.listeners.insert(listener);
    }

    /// Whether the proof is due. The first one is due some time after the first listener was added. `None` where there
    /// is no listener.
    pub(super) fn is_due(&mut self, now: Instant) -> Option<bool> {
        if self.listeners.is_empty() {
            self.due = None;
            return None;
        }
        Some(*self.due.get_or_insert(now + AGAIN) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_where_nothing_is_exposed() {
        let mut exposed = Exposed::default();
        let now = Instant::now();
        assert_eq!(exposed.is_due(now), None);
        exposed.add(1);
        assert_eq!(exposed.is_due(now), Some(false));
        assert_eq!(exposed.is_due(now + AGAIN), Some(true));
        exposed.listeners.clear();
        assert_eq!(exposed.is_due(now + AGAIN), None);
    }
}
