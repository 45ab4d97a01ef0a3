//! A difference between two runs of a program.

/// A step in which runs over kernel TCP and other runs differ.
#[derive(Clone)]
pub struct Difference {
    /// The place of the step.
    pub place: usize,
    /// The observation of each run there.
    pub kernel: String,
    pub other: String,
    /// Whether all runs show the difference.
    pub always: bool,
    /// Whether too few runs show the difference to be sure of it.
    pub seldom: bool,
}
