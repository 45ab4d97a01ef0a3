//! Differences from kernel TCP that NetChannel keeps, each with its number in SPECIFICATION.md. These cases still run
//! under NetChannel, and their result is shown.

/// Case names without the family at their end, or a common beginning of several names, with the promise that describes
/// the difference.
const KEPT: [(&str, &str); 18] = [
    ("deferred_killed_client_comes", "8.3"),
    ("deferred_more_than_the_backlog", "8.3"),
    ("held_back_before_a_deferred_accept", "8.3"),
    ("deferred_client_forks", "8.3"),
    ("corner_12_backlog_full_waits", "8.1"),
    ("corner_12_backlog_full_send_timeout", "8.1"),
    ("corner_12_connecting_nonblocking", "8.1"),
    ("corner_12_connecting_poll_and_select", "8.1"),
    ("corner_12_connecting_epoll", "8.1"),
    ("corner_12_connecting_blocking_waits", "8.1"),
    ("corner_12_connecting_transfers_wait", "8.1"),
    ("corner_12_connecting_timeout_then_again", "8.1"),
    ("corner_12_connecting_eintr", "8.1"),
    ("corner_12_connecting_restarts", "8.1"),
    ("corner_12_connecting_refused_late", "8.1"),
    ("corner_12_connecting_refused_late_told_by_calls", "8.1"),
    ("corner_12_connecting_refused_late_blocking", "8.1"),
    ("corner_12_connecting_shut", "8.1"),
];

/// Differences that only the relay has.
const OF_THE_RELAY: [(&str, &str); 4] = [
    ("deferred_killed_client_comes", "8.3"),
    ("deferred_more_than_the_backlog", "8.3"),
    ("held_back_before_a_deferred_accept", "8.3"),
    ("deferred_client_forks", "8.3"),
];

/// The number of the kept difference that a case shows, or `None` if the case shows none.
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

/// As [`kept`], for connections through the daemon's relay. Differences that hold on one host only do not hold there.
#[must_use]
pub fn kept_through_the_relay(case: &str) -> Option<&'static str> {
    find(&OF_THE_RELAY, case)
}
