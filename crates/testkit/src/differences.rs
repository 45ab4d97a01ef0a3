//! What NetChannel does otherwise than kernel TCP, and keeps: each with its number in
//! SPECIFICATION.md. These cases run under NetChannel all the same, and what they say is shown.

/// Cases, without the family at their end, and the promise that describes the difference.
pub const KEPT: [(&str, &str); 4] = [
    ("corner_12_backlog_full_waits", "8.1"),
    ("corner_12_backlog_full_send_timeout", "8.1"),
    ("descriptors_out_of_band", "8.2"),
    ("corner_04_prefork_worker_killed_while_accepting", "8.17"),
];

/// The number of the difference that a case shows, if it is one that is kept.
#[must_use]
pub fn kept(case: &str) -> Option<&'static str> {
    KEPT.iter()
        .find(|(name, _)| {
            case.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with("_v"))
        })
        .map(|(_, number)| *number)
}
