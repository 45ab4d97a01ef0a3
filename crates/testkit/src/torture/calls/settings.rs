//! Time-outs and settings with which a case is run.

use std::time::Duration;

/// How a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// How long a call must sleep until it counts as waiting.
    pub patience: Duration,
    /// The same for a call that waits only for other actors. If it is shorter than `patience`, an actor that a step has
    /// not woken is not waited for.
    pub haste: Duration,
    /// How long bytes in transit may take after each step.
    pub settling: Duration,
    /// Whether the first actor is an executed program, and not a child of a process that ran cases before.
    pub fresh: bool,
}
