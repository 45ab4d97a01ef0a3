//! Differences from kernel TCP that a tenant's connections through the stack keep, each with its number in SPECIFICATION.md, section
//! 16. These cases still run, and their result is shown.

use crate::far::Side;

/// Case names without the family at their end, or a common beginning of several names; the end that must be outside the tenant (either
/// end, where none is named); the number of the difference.
const KEPT: [(&str, Option<Side>, &str); 58] = [
    (
        "corner_04_queue_last_holder_goes",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_14_told_only_v6_of_a_connection_that_is_over",
        Some(Side::Server),
        "16.11",
    ),
    (
        "dual_stack_v6only_names_nobody_of",
        Some(Side::Server),
        "16.16",
    ),
    (
        "corner_12_connect_bound_socket_keeps_its_port",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_names_agree_at_both_ends",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_again_is_accepted_in_its_turn",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_again_after_what_is_no_address",
        Some(Side::Server),
        "16.11",
    ),
    ("corner_12_again_by_a_child", Some(Side::Server), "16.15"),
    (
        "corner_12_accept_tells_the_peer",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_client_closes_before_accept",
        Some(Side::Server),
        "16.11",
    ),
    ("corner_12_connecting_closed", Some(Side::Server), "16.11"),
    (
        "corner_12_nonblocking_connect_hundred_at_once",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_dissolve_keeps_a_bound_address",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_dissolve_gives_the_port_of_a_listener_back",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_12_former_port_is_not_kept",
        Some(Side::Server),
        "16.11",
    ),
    (
        "deferred_silent_client_is_nobodys",
        Some(Side::Server),
        "16.11",
    ),
    ("deferred_client_is_told", Some(Side::Server), "16.11"),
    (
        "dual_stack_connect_to_mapped_address",
        Some(Side::Server),
        "16.11",
    ),
    ("listeners_pending_in_order", Some(Side::Server), "16.11"),
    (
        "listeners_accept_blocks_until_connection",
        Some(Side::Server),
        "16.11",
    ),
    (
        "corner_04_queue_child_looks_parent_accepts",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_edge_is_told_to_all_and_once",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_keeps_its_order",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_waits_over_a_fork_for_the_child",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_epoll_looks_without_waiting",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_epoll_edge_without_waiting",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_inherited_set_looks_parent_accepts",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_04_queue_set_made_after_the_connection",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_14_listener_looked_at_without_waiting",
        Some(Side::Client),
        "16.12",
    ),
    (
        "corner_10_deaf_writer_without_room",
        Some(Side::Server),
        "16.13",
    ),
    (
        "corner_14_ended_unacknowledged_bytes",
        Some(Side::Server),
        "16.13",
    ),
    (
        "corner_14_ended_unacknowledged_bytes_that_were_held",
        Some(Side::Server),
        "16.13",
    ),
    ("corner_13_send_restarts", Some(Side::Client), "16.13"),
    (
        "corner_11_linger_zero_drops_unsent_data",
        Some(Side::Server),
        "16.14",
    ),
    (
        "fresh_bound_fork_then_parent_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "fresh_fork_then_parent_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "fresh_fork_then_child_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "corner_06_unconnected_then_sender_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "corner_06_unconnected_then_receiver_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "corner_06_unconnected_spawned_then_connects",
        Some(Side::Server),
        "16.15",
    ),
    (
        "corner_06_unconnected_listens_after_a_failed_connect",
        Some(Side::Client),
        "16.15",
    ),
    (
        "corner_06_waiting_for_a_listener_in_a_message",
        Some(Side::Client),
        "16.15",
    ),
    (
        "corner_06_waiting_for_a_listener_sent_to_oneself",
        Some(Side::Client),
        "16.15",
    ),
    (
        "corner_06_waiting_for_a_listener_never_received",
        Some(Side::Client),
        "16.15",
    ),
    (
        "corner_05_exec_listener_of_a_spawned_program",
        Some(Side::Client),
        "16.15",
    ),
    (
        "corner_05_exec_listener_by_another_number_of_a_spawned_program",
        Some(Side::Client),
        "16.15",
    ),
    ("fresh_fork_then_child_listens", Some(Side::Client), "16.15"),
    ("corner_17_fresh_and_a_fork", Some(Side::Server), "16.15"),
    ("corner_17_fresh_is_passed", Some(Side::Server), "16.15"),
    ("corner_15_limit_listens_again", Some(Side::Client), "16.15"),
    ("corner_06_rights_listener", Some(Side::Client), "16.15"),
    (
        "corner_14_states_shutdown_before_connect",
        Some(Side::Server),
        "16.16",
    ),
    (
        "corner_14_states_shutdown_of_a_bound_socket",
        Some(Side::Server),
        "16.16",
    ),
    (
        "corner_17_names_shut_before_listen",
        Some(Side::Client),
        "16.16",
    ),
    (
        "corner_17_held_is_dropped_by_who_is_killed_with_unread_bytes",
        Some(Side::Client),
        "16.14",
    ),
    ("urgent_inline_switched_on", Some(Side::Server), "16.17"),
    ("urgent_after_shutdown_of_both", Some(Side::Server), "16.17"),
    ("deferred_more_than_the_backlog", Some(Side::Client), "8.3"),
];

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
