//! Placements to compare with.

use super::{Core, Load, Placed, PlacementPolicy, PlacementView, Reason, Urgency};
use crate::view::{Class, WorkerId};

/// Away from the other class, then over as many last-level caches as there are: for workers that are bound by memory
/// bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    urgency: Urgency,
}

impl Spread {
    /// A placement with this urgency for L workers.
    #[must_use]
    pub fn new(urgency: Urgency) -> Self {
        Self { urgency }
    }
}

impl PlacementPolicy for Spread {
    fn place(&mut self, worker: WorkerId, class: Class, view: &PlacementView<'_>) -> Placed {
        let cost = |core: &&Core| {
            let load = Load::of(core, worker, view);
            let in_group = view
                .cores
                .iter()
                .filter(|other| other.group == core.group && other.node == core.node)
                .map(|other| u32::from(Load::of(other, worker, view).workers))
                .sum::<u32>();
            let (other, own, beside_other, beside_own) = load.disturbance(class);
            (other, own, in_group, beside_other, beside_own, core.id)
        };
        match view.cores.iter().min_by_key(cost) {
            Some(core) => {
                let reason = Load::of(core, worker, view).reason(class);
                self.urgency.place(class, Some(core.id), reason)
            }
            None => self.urgency.place(class, None, Reason::NotPinned),
        }
    }
}

/// Pins nothing; the kernel's scheduler places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere {
    urgency: Urgency,
}

impl Anywhere {
    /// No placement, with this urgency for L workers.
    #[must_use]
    pub fn new(urgency: Urgency) -> Self {
        Self { urgency }
    }
}

impl PlacementPolicy for Anywhere {
    fn place(&mut self, _worker: WorkerId, class: Class, _view: &PlacementView<'_>) -> Placed {
        self.urgency.place(class, None, Reason::NotPinned)
    }
}
