//! Always as many.

use super::{Action, Reason, ScaleDecision, ScalePolicy, ScaleView};
use crate::time::SECOND;

/// A number of channels for each class, whatever the load: for experiments.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// By [`crate::Class::index`].
    counts: [u16; 2],
    bounds: [Bounds; 2],
}

impl Fixed {
    /// The numbers of L and of T channels, at least 1 of T.
    #[must_use]
    pub fn new(latency: u16, throughput: u16) -> Self {
        Self {
            counts: [latency, throughput.max(1)],
            bounds: Default::default(),
        }
    }
}

impl ScalePolicy for Fixed {
    fn decide(&mut self, view: &ScaleView<'_>, now: u64) -> ScaleDecision {
        let wanted = self.counts[view.class.index()];
        let bounds = &mut self.bounds[view.class.index()];
        let (action, reason) = bounds.keep(view, wanted, wanted, now).unwrap_or_else(|| {
            let utilisation = view.utilisation();
            (Action::Keep, Reason::Steady { utilisation })
        });
        ScaleDecision {
            class: view.class,
            action,
            reason,
        }
    }
}

/// A channel that could not be opened is asked for again after this.
const AGAIN: u64 = SECOND;

/// Brings the number of channels within bounds, without asking for the same one at every look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// When a channel was requested, and how many there were.
    asked: Option<(u64, u16)>,
}

impl Bounds {
    /// `None` if the number is within its bounds.
    pub(super) fn keep(
        &mut self,
        view: &ScaleView<'_>,
        least: u16,
        most: u16,
        now: u64,
    ) -> Option<(Action, Reason)> {
        let count = view.count();
        if count < least {
            let reason = Reason::TooFew { count, least };
            if let Some((since, had)) = self.asked
                && count <= had
                && now.saturating_sub(since) < AGAIN
            {
                return Some((Action::Keep, reason));
            }
            self.asked = Some((now, count));
            return Some((Action::Add, reason));
        }
        self.asked = None;
        if count > most {
            let reason = Reason::TooMany { count, most };
            let action = view.least_useful().map_or(Action::Keep, Action::Retire);
            return Some((action, reason));
        }
        None
    }
}
