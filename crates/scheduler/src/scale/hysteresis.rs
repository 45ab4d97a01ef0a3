//! More channels when workers are persistently busy and the transport is not what holds them back; fewer when idle.
//!
//! Flapping is prevented in several ways: busy and idle have different thresholds; each must last, idle far longer;
//! time between samples that were neither counts against busy and restarts idle; no channel is retired whose share
//! would make the others busy; after a change nothing changes for a while; and if a channel was missed after it had
//! been retired, idle must last twice as long next time.

use super::fixed::Bounds;
use super::{Action, Reason, ScaleDecision, ScalePolicy, ScaleView};
use crate::time::{MILLISECOND, SECOND};

/// Parameters of [`Hysteresis`]. Times in nanoseconds, utilisations 0 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HysteresisParameters {
    /// Least and most channels, by [`crate::Class::index`].
    pub counts: [(u16, u16); 2],
    /// From this utilisation on workers are busy.
    pub busy: u16,
    /// Below this they are idle.
    pub idle: u16,
    /// How long they must be busy.
    pub busy_for: u64,
    /// How long they must be idle.
    pub idle_for: u64,
    /// How long nothing changes after a change.
    pub pause: u64,
}

impl Default for HysteresisParameters {
    fn default() -> Self {
        Self {
            counts: [(1, 1), (1, 4)],
            busy: 850,
            idle: 300,
            busy_for: 200 * MILLISECOND,
            idle_for: 5 * SECOND,
            pause: SECOND,
        }
    }
}

/// See the file.
#[derive(Clone, Debug)]
pub struct Hysteresis {
    parameters: HysteresisParameters,
    states: [State; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    looked_at: Option<u64>,
    busy: u64,
    idle: u64,
    changed_at: Option<u64>,
    retired_at: Option<u64>,
    /// Idle must last `idle_for << patience`.
    patience: u32,
    bounds: Bounds,
}

/// Idle has to last at most 16 times as long.
const MOST_PATIENCE: u32 = 4;

impl Hysteresis {
    /// Bounds are put in order: at least 1 T channel, `most` not below `least`, `idle` below `busy`.
    #[must_use]
    pub fn new(mut parameters: HysteresisParameters) -> Self {
        parameters.counts[1].0 = parameters.counts[1].0.max(1);
        for (least, most) in &mut parameters.counts {
            *most = (*most).max(*least);
        }
        parameters.busy = parameters.busy.clamp(1, 1000);
        parameters.idle = parameters.idle.min(parameters.busy - 1);
        Self {
            parameters,
            states: Default::default(),
        }
    }
}

impl ScalePolicy for Hysteresis {
    fn decide(&mut self, view: &ScaleView<'_>, now: u64) -> ScaleDecision {
        let state = &mut self.states[view.class.index()];
        let (least, most) = self.parameters.counts[view.class.index()];
        let (action, reason) = match state.bounds.keep(view, least, most, now) {
            Some(change) => change,
            None => state.decide(&self.parameters, view, now),
        };
        if action != Action::Keep {
            state.changed(action, &self.parameters, now);
        }
        ScaleDecision {
            class: view.class,
            action,
            reason,
        }
    }
}

impl State {
    fn decide(
        &mut self,
        parameters: &HysteresisParameters,
        view: &ScaleView<'_>,
        now: u64,
    ) -> (Action, Reason) {
        let utilisation = view.utilisation();
        self.account(parameters, utilisation, now);
        let (least, most) = parameters.counts[view.class.index()];
        let keep = |reason| (Action::Keep, reason);

        if let Some(changed_at) = self.changed_at {
            let ago = now.saturating_sub(changed_at);
            if ago < parameters.pause {
                return keep(Reason::JustChanged { ago });
            }
        }
        if utilisation >= parameters.busy {
            let lasted = self.busy;
            if lasted < parameters.busy_for {
                return keep(Reason::BusyNotLong { lasted });
            }
            if view.congestion_limited() {
                return keep(Reason::CongestionLimited);
            }
            if view.count() >= most {
                return keep(Reason::AtMost { most });
            }
            let reason = Reason::Busy {
                utilisation,
                lasted,
            };
            return (Action::Add, reason);
        }
        if utilisation >= parameters.idle {
            return keep(Reason::Steady { utilisation });
        }
        let lasted = self.idle;
        let wanted = parameters.idle_for << self.patience;
        if lasted < wanted {
            return keep(Reason::IdleNotLong { lasted, wanted });
        }
        let count = view.count();
        if count <= least {
            return keep(Reason::AtLeast { least });
        }
        let alone = u32::from(utilisation) * u32::from(count) / u32::from(count.max(2) - 1);
        let utilisation_then = u16::try_from(alone).unwrap_or(u16::MAX);
        if utilisation_then >= parameters.busy {
            let utilisation = utilisation_then;
            return keep(Reason::OthersWouldBeBusy { utilisation });
        }
        let reason = Reason::Idle {
            utilisation,
            lasted,
        };
        match view.least_useful() {
            Some(channel) => (Action::Retire(channel), reason),
            None => keep(reason),
        }
    }

    /// Adds the time since the last sample to its state. One sample tells nothing about a long time before it.
    fn account(&mut self, parameters: &HysteresisParameters, utilisation: u16, now: u64) {
        let elapsed = now.saturating_sub(self.looked_at.unwrap_or(now));
        self.looked_at = Some(now);
        let some = elapsed.min(parameters.busy_for.div_ceil(2));
        if utilisation >= parameters.busy {
            self.busy = (self.busy + some).min(parameters.busy_for);
        } else {
            self.busy = self.busy.saturating_sub(some);
        }
        let longest = parameters.idle_for << MOST_PATIENCE;
        if utilisation < parameters.idle {
            let some = elapsed.min(parameters.idle_for.div_ceil(2));
            self.idle = (self.idle + some).min(longest);
        } else {
            self.idle = 0;
        }
    }

    fn changed(&mut self, action: Action, parameters: &HysteresisParameters, now: u64) {
        let soon = (parameters.idle_for << self.patience).saturating_mul(4);
        match (action, self.retired_at) {
            (Action::Retire(_), _) => self.retired_at = Some(now),
            (Action::Add, Some(retired_at)) => {
                self.retired_at = None;
                if now.saturating_sub(retired_at) < soon {
                    self.patience = (self.patience + 1).min(MOST_PATIENCE);
                } else {
                    self.patience = 0;
                }
            }
            (Action::Add | Action::Keep, _) => {}
        }
        self.changed_at = Some(now);
        self.busy = 0;
        self.idle = 0;
    }
}
