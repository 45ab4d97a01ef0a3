//! How a program is conducted.

use std::time::Duration;

/// How a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// How long a call must sleep until it is taken for one that waits.
    pub patience: Duration,
    /// The same of a call that only waits for what others do. Where this is shorter, who has not been woken when a step is done is
    /// not waited for.
    pub haste: Duration,
    /// How long what is on its way may take after each step.
    pub settling: Duration,
    /// Whether the first actor is a program of its own, and no child of one that ran cases before.
    pub fresh: bool,
}
