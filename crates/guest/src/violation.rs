//! What a side may not do.

/// What the other side did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);
