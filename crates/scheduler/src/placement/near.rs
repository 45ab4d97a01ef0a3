//! Apart from what disturbs, near to what it works with.

use super::{Core, Load, Occupant, Placed, PlacementPolicy, PlacementView, Reason, Urgency};
use crate::view::{Class, WorkerId};

/// First away from the other class, then away from everything, then from busy hyper-thread siblings; of what is left, where
/// most of our programs and workers share the last-level cache, on the device's node, at the lowest number.
///
/// So an L worker has a core of its own while there is one, and bytes stay in one cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Near {
    urgency: Urgency,
}

impl Near {
    /// A placement with this urgency for L workers.
    #[must_use]
    pub fn new(urgency: Urgency) -> Self {
        Self { urgency }
    }
}

impl PlacementPolicy for Near {
    fn place(&mut self, worker: WorkerId, class: Class, view: &PlacementView<'_>) -> Placed {
        let cost = |core: &&Core| {
            let load = Load::of(core, worker, view);
            let near = neighbours(core, worker, view);
            let far = view.device_node.is_some_and(|node| node != core.node);
            let disturbance = load.disturbance(class);
            (
                disturbance,
                far && near.1 == 0,
                u32::MAX - near.0,
                far,
                core.id,
            )
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

/// The number of occupants that share the core's last-level cache, and the number on its node.
fn neighbours(core: &Core, worker: WorkerId, view: &PlacementView<'_>) -> (u32, u32) {
    let mut near = (0, 0);
    for (place, occupant) in view.occupied {
        if matches!(occupant, Occupant::Worker(id, _) if *id == worker) {
            continue;
        }
        if let Some(other) = view.core(*place)
            && other.node == core.node
        {
            near.1 += 1;
            near.0 += u32::from(other.group == core.group);
        }
    }
    near
}
