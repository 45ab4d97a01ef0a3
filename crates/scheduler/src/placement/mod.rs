//! On which core a worker runs.

mod near;
mod other;

#[cfg(test)]
mod tests;

pub use near::Near;
pub use other::{Anywhere, Spread};

use core::fmt;

use crate::time::MILLISECOND;
use crate::view::{Class, CoreId, WorkerId};

/// One logical processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// As the kernel numbers it.
    pub id: CoreId,
    /// Physical core: those of one share its units (hyper-threads).
    pub physical: u16,
    /// Cores of one group share the last-level cache.
    pub group: u16,
    /// NUMA node.
    pub node: u16,
}

/// An occupant of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// A worker of ours.
    Worker(WorkerId, Class),
    /// A program that uses NetChannel, as far as known.
    Program(Class),
}

/// A core and its occupant. A core with three occupants is listed three times.
pub type Occupied = (CoreId, Occupant);

/// The input of a placement.
#[derive(Clone, Copy, Debug)]
pub struct PlacementView<'a> {
    /// Cores that we may use.
    pub cores: &'a [Core],
    /// The occupants of cores. The worker in question is not among them, or is ignored.
    pub occupied: &'a [Occupied],
    /// The NUMA node of the network device, if known.
    pub device_node: Option<u16>,
}

impl PlacementView<'_> {
    fn core(&self, id: CoreId) -> Option<&Core> {
        // Nearly always the number is the index.
        let guess = self.cores.get(usize::from(id.0));
        match guess {
            Some(core) if core.id == id => guess,
            _ => self.cores.iter().find(|core| core.id == id),
        }
    }
}

/// The core of a worker, and its treatment by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The core to pin it to; none: leave it to the kernel.
    pub core: Option<CoreId>,
    /// Why that one.
    pub reason: Reason,
    /// Niceness, -20 to 0. Where the system does not permit it, go without.
    pub nice: i8,
    /// Length of a slice in nanoseconds (`sched_setattr`, Linux 6.12), 0 for the kernel's own.
    pub slice: u64,
}

/// Why a core was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No other occupant.
    Free,
    /// The core is free, but its hyper-thread sibling is not.
    SharesPhysicalCore,
    /// An occupant that does not disturb it shares the core.
    SharesCore,
    /// There is no core that keeps L and T apart.
    NoIsolation,
    /// The policy pins nothing, or no core may be used.
    NotPinned,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Free => "the core is free",
            Self::SharesPhysicalCore => "the core is free, its hyper-thread sibling is not",
            Self::SharesCore => "no core is free; this one disturbs least",
            Self::NoIsolation => "too few cores to keep latency and throughput apart",
            Self::NotPinned => "left to the kernel",
        })
    }
}

/// Places one worker at a time.
pub trait PlacementPolicy: Send {
    /// Chooses the core of a worker of a class.
    fn place(&mut self, worker: WorkerId, class: Class, view: &PlacementView<'_>) -> Placed;
}

/// The urgency of a worker for the kernel's scheduler. L workers get short slices and precede others: they have little
/// to do, and soon (the paper runs its latency channels on high-priority work queues).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Niceness of L workers below 0: 5 is nice -5. 0 to 20.
    pub priority: u8,
    /// Slice of L workers in nanoseconds, 0 for the kernel's own.
    pub slice: u64,
}

impl Default for Urgency {
    fn default() -> Self {
        Self {
            priority: 10,
            slice: MILLISECOND / 10,
        }
    }
}

impl Urgency {
    fn place(self, class: Class, core: Option<CoreId>, reason: Reason) -> Placed {
        let (priority, slice) = match class {
            Class::Latency => (self.priority.min(20), self.slice),
            Class::Throughput => (0, 0),
        };
        Placed {
            core,
            reason,
            nice: i8::try_from(priority).map_or(0, |priority| -priority),
            slice,
        }
    }
}

/// The occupants of a core, and those beside it.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Occupants of this core: by class, workers and programs together.
    here: [u16; 2],
    /// Of these, workers.
    workers: u16,
    /// Occupants of its siblings, by class.
    beside: [u16; 2],
}

impl Load {
    fn of(core: &Core, worker: WorkerId, view: &PlacementView<'_>) -> Self {
        let mut load = Self::default();
        for (place, occupant) in view.occupied {
            let class = match occupant {
                Occupant::Worker(id, _) if *id == worker => continue,
                Occupant::Worker(_, class) | Occupant::Program(class) => *class,
            };
            if *place == core.id {
                load.here[class.index()] += 1;
                load.workers += u16::from(matches!(occupant, Occupant::Worker(..)));
            } else if view
                .core(*place)
                .is_some_and(|other| is_sibling(core, other))
            {
                load.beside[class.index()] += 1;
            }
        }
        load
    }

    /// How much a worker of the class would disturb others, and be disturbed.
    fn disturbance(&self, class: Class) -> (u16, u16, u16, u16) {
        let other = class.other().index();
        let own = class.index();
        (
            self.here[other],
            self.here[own],
            self.beside[other],
            self.beside[own],
        )
    }

    fn reason(&self, class: Class) -> Reason {
        if self.here[class.other().index()] > 0 {
            Reason::NoIsolation
        } else if self.here[class.index()] > 0 {
            Reason::SharesCore
        } else if self.beside != [0; 2] {
            Reason::SharesPhysicalCore
        } else {
            Reason::Free
        }
    }
}

fn is_sibling(one: &Core, other: &Core) -> bool {
    one.id != other.id && one.physical == other.physical && one.node == other.node
}
