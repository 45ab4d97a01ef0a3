//! What tells two runs of a program apart.

/// Where runs over kernel TCP and others differ.
#[derive(Clone)]
pub struct Difference {
    /// The place of the step.
    pub place: usize,
    /// What each saw there.
    pub kernel: String,
    pub other: String,
    /// Whether it is so in each run.
    pub always: bool,
    /// Whether it is so in too few runs to be sure.
    pub seldom: bool,
}
