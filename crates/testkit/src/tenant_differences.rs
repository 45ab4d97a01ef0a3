//! Differences from kernel TCP that a tenant's connections through the stack keep, each with its number in SPECIFICATION.md, section
//! 16. These cases still run, and their result is shown.

use crate::far::Side;

/// Case names without the family at their end, or a common beginning of several names; the end that must be outside the tenant (either
/// end, where none is named); the number of the difference.
const KEPT: [(&str, Option<Side>, &str); 0] = [];

/// The number of the kept difference that a case shows with that end outside, or `None` if it shows none.
#[must_use]
pub fn kept(case: &str, outside: Side) -> Option<&'static str> {
    let fits = |name: &str| {
        case.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("_v") || name.ends_with('_'))
    };
    KEPT.iter()
        .find(|(name, side, _)| fits(name) && side.is_none_or(|side| side == outside))
        .map(|(_, _, number)| *number)
}

/// The names of the list.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEPT.iter().map(|(name, _, _)| *name)
}
