//! What NetChannel does otherwise than kernel TCP, and keeps: each with its number in
//! SPECIFICATION.md. These cases run under NetChannel all the same, and what they say is shown.

/// Cases, without the family at their end, and the promise that describes the difference. A name
/// that ends with `_` stands for all that begin with it.
const KEPT: [(&str, &str); 5] = [
    ("corner_12_backlog_full_waits", "8.1"),
    ("corner_12_backlog_full_send_timeout", "8.1"),
    ("corner_12_connecting_", "8.1"),
    ("descriptors_out_of_band", "8.2"),
    ("corner_04_prefork_worker_killed_while_accepting", "8.17"),
];

/// Those of them that are kept through the daemon's relay too.
const THROUGH_THE_RELAY: [&str; 2] = ["8.2", "8.17"];

/// Those that only the relay has.
const OF_THE_RELAY: [(&str, &str); 3] = [
    ("corner_05_exec_listener_as_nginx_upgrades", "8.17"),
    ("corner_12_connecting_refused_late_blocking", "8.23"),
    ("corner_14_reset_after_the_end_is_a_broken_pipe", "8.23"),
];

/// The number of the difference that a case shows, if it is one that is kept.
#[must_use]
pub fn kept(case: &str) -> Option<&'static str> {
    find(&KEPT, case)
}

fn find(list: &[(&str, &'static str)], case: &str) -> Option<&'static str> {
    list.iter()
        .find(|(name, _)| {
            case.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with("_v") || name.ends_with('_'))
        })
        .map(|(_, number)| *number)
}

/// As [`kept`], where the connections go through the daemon's relay.
#[must_use]
pub fn kept_through_the_relay(case: &str) -> Option<&'static str> {
    kept(case)
        .filter(|number| THROUGH_THE_RELAY.contains(number))
        .or_else(|| find(&OF_THE_RELAY, case))
}
