//! Cases that test nothing between hosts as they are written, each with the reason: their subject stays on one host.
//! Over kernel TCP they would fail there too. They run on one host, where no case is left out.

use crate::far::Side;

/// The beginning of a case's name, the end that must not be on the other host (either end, where none is named), and
/// the reason.
const LEFT_OUT: [(&str, Option<Side>, &str); 116] = [
    ("corner_14_told_without_a_value", None, MEMORY),
    (
        "corner_02_close_of_one_number_while_blocked_accept",
        Some(Side::Server),
        SIGNALS,
    ),
    (
        "corner_02_number_of_a_blocked_accept",
        Some(Side::Server),
        NUMBERS,
    ),
    ("deferred_killed_client_comes", Some(Side::Client), ENDS),
    ("deferred_silent_faults", Some(Side::Client), MEMORY),
    ("deferred_client_exits", Some(Side::Client), ENDS),
    (
        "corner_04_sole_acceptor_is_killed_clients_have_ended",
        Some(Side::Client),
        ENDS,
    ),
    (
        "corner_11_kill_client_between_two_accepts",
        Some(Side::Client),
        ENDS,
    ),
    (
        "corner_14_ended_before_it_was_accepted",
        Some(Side::Server),
        ENDS,
    ),
    (
        "corner_02_close_and_reuse_while_blocked_recv",
        None,
        NUMBERS,
    ),
    (
        "corner_02_close_of_one_number_and_a_signal",
        Some(Side::Client),
        SIGNALS,
    ),
    (
        "corner_02_shared_close_while_blocked_recv",
        Some(Side::Client),
        SHARED,
    ),
    (
        "corner_02_shared_close_of_one_number",
        Some(Side::Client),
        SHARED,
    ),
    (
        "corner_12_former_port_can_be_bound_beside",
        Some(Side::Server),
        TWO_HOSTS,
    ),
    (
        "listeners_port_of_what_was_accepted",
        Some(Side::Server),
        TWO_HOSTS,
    ),
    ("listeners_keep_their_ports", Some(Side::Client), TWO_HOSTS),
    ("urgent_many_in_a_row", None, APART),
    ("held_and_lost_to_who_is_killed", Some(Side::Server), ENDS),
    (
        "corner_17_held_is_dropped_by_who_is_killed_with_unread_bytes",
        Some(Side::Server),
        ENDS,
    ),
    (
        "corner_17_held_is_there_when_its_sender_ends",
        Some(Side::Server),
        ENDS,
    ),
    (
        "corner_17_waits_for_more_than_it_asks",
        Some(Side::Server),
        SIGNALS,
    ),
    (
        "corner_17_waits_end_with_a_signal",
        Some(Side::Server),
        SIGNALS,
    ),
    (
        "corner_17_waits_end_with_a_handler",
        Some(Side::Server),
        SIGNALS,
    ),
    ("held_over_exec", Some(Side::Client), PASSED_ON),
    (
        "corner_02_close_in_a_handler_while_polled",
        Some(Side::Client),
        SIGNALS,
    ),
    (
        "corner_03_both_ends_in_one_process_then_fork",
        Some(Side::Server),
        SHARED,
    ),
    (
        "corner_03_forks_while_threads_open_and_close",
        Some(Side::Server),
        SHARED,
    ),
    (
        "corner_03_parent_closes_child_goes_on",
        Some(Side::Client),
        SHARED,
    ),
    (
        "corner_03_set_gets_a_member_after_fork",
        Some(Side::Server),
        SHARED,
    ),
    (
        "corner_04_prefork_parent_has_waited",
        Some(Side::Server),
        SHARED,
    ),
    (
        "corner_12_again_when_the_listener_was_killed",
        Some(Side::Server),
        ENDS,
    ),
    ("corner_12_shut_when_the_listener_was_killed", None, LATER),
    ("corner_05_exec_", Some(Side::Server), PASSED_ON),
    (
        "corner_06_waiting_for_a_listener_that_is_not_sent",
        None,
        LATER,
    ),
    ("corner_06_waiting_for_a_spawned_program", None, PASSED_ON),
    (
        "corner_05_exec_set_with_an_end_that_it_made",
        Some(Side::Client),
        ENDS,
    ),
    (
        "corner_17_sets_tell_of_members_with_the_same_data",
        Some(Side::Client),
        LATER,
    ),
    (
        "corner_07_one_set_several_threads_each_event_once",
        Some(Side::Server),
        SLOW,
    ),
    ("corner_11_abort_", Some(Side::Server), ENDS),
    ("corner_11_exit_", Some(Side::Server), ENDS),
    ("corner_11_kill_", Some(Side::Server), ENDS),
    (
        "corner_11_kill_client_before_accept",
        Some(Side::Client),
        ENDS,
    ),
    (
        "corner_11_linger_zero_at_exit_resets",
        Some(Side::Server),
        ENDS,
    ),
    (
        "corner_16_confined_from_its_start",
        Some(Side::Client),
        PASSED_ON,
    ),
    ("corner_12_bind_taken_port", Some(Side::Server), TWO_HOSTS),
    ("corner_12_connecting_nonblocking_v6", None, ADDRESSES),
    ("corner_14_recvmmsg_leaves_an_error", None, MEMORY),
    (
        "corner_12_former_address_goes_with_a_bind_that_fails",
        None,
        ADDRESSES,
    ),
    ("corner_12_names_agree_at_both_ends_v6", None, ADDRESSES),
    ("corner_12_backlog_full_waits", Some(Side::Server), BACKLOG),
    ("corner_12_backlog_full_", Some(Side::Client), ONE_HOST),
    ("corner_12_connecting_", Some(Side::Client), ONE_HOST),
    ("corner_13_accept_eintr_", Some(Side::Server), SIGNALS),
    ("corner_12_dissolve_beyond_a_lower_limit", None, NUMBERS),
    ("corner_13_cancel_in_accept", Some(Side::Server), SIGNALS),
    ("corner_13_cancel_in_recv", Some(Side::Client), SIGNALS),
    ("corner_13_recv_eintr", Some(Side::Client), SIGNALS),
    (
        "corner_13_recv_timeout_is_interrupted",
        Some(Side::Client),
        SIGNALS,
    ),
    ("corner_13_send_eintr", Some(Side::Client), SIGNALS),
    (
        "corner_13_send_in_signal_handler",
        Some(Side::Client),
        SIGNALS,
    ),
    (
        "corner_13_send_partial_when_interrupted",
        Some(Side::Client),
        SIGNALS,
    ),
    ("corner_14_arguments_", None, MEMORY),
    ("corner_14_beside_", None, MEMORY),
    ("corner_14_ended_without_a_word", Some(Side::Server), ENDS),
    (
        "urgent_before_the_end_of_a_killed_peer",
        Some(Side::Server),
        ENDS,
    ),
    ("corner_14_fault_in_vectors", None, MEMORY),
    ("corner_14_ended_bind_v", None, TWO_HOSTS),
    ("corner_14_ended_recvmmsg_leaves_an_error", None, MEMORY),
    ("corner_14_low_water_and_", Some(Side::Client), SIGNALS),
    ("corner_14_negative_room_is_large_to_ipv6", None, MEMORY),
    ("corner_14_no_value_is_zero_to_ipv6", None, MEMORY),
    (
        "corner_14_nothing_to_receive_interrupted",
        Some(Side::Client),
        SIGNALS,
    ),
    ("corner_14_splicing_", None, NUMBERS),
    ("corner_14_states_addresses_", None, TWO_HOSTS),
    ("corner_14_told_numbers_", None, NUMBERS),
    ("corner_14_told_window_clamp", None, ADDRESSES),
    ("corner_14_trunc_discards", None, MEMORY),
    ("corner_14_vectors_too_many", None, MEMORY),
    ("corner_14_waits_", None, MEMORY),
    ("corner_15_close_all_", None, NUMBERS),
    ("corner_15_close_range_", None, NUMBERS),
    ("corner_15_closefrom", None, NUMBERS),
    (
        "corner_15_waiting_for_a_listener_takes_no_number",
        None,
        NUMBERS,
    ),
    ("corner_15_daemon_call", Some(Side::Server), PASSED_ON),
    ("corner_15_lowest_number_is_used", None, NUMBERS),
    ("corner_15_proc_says_socket", None, NUMBERS),
    (
        "corner_15_spawn_with_file_actions",
        Some(Side::Server),
        PASSED_ON,
    ),
    ("corner_15_system_and_popen", Some(Side::Server), PASSED_ON),
    (
        "corner_15_vfork_with_a_set_only",
        Some(Side::Server),
        NUMBERS,
    ),
    ("corner_16_confined_", Some(Side::Server), CONFINED),
    ("descriptors_udp_and_unix_untouched", None, TWO_HOSTS),
    ("dual_stack_across_processes", Some(Side::Client), ADDRESSES),
    ("dual_stack_bind_specific_source", None, ADDRESSES),
    ("dual_stack_listener_127_other_address", None, ADDRESSES),
    ("foreign_aliased_names", None, MEMORY),
    ("foreign_dprintf", None, NUMBERS),
    ("foreign_fortified_names", None, MEMORY),
    ("fresh_used_beyond_", None, NUMBERS),
    (
        "listeners_pending_of_a_client_that_ended",
        Some(Side::Client),
        ENDS,
    ),
    (
        "listeners_process_exit_resets_pending",
        Some(Side::Server),
        ENDS,
    ),
    ("ltp_connect01", Some(Side::Client), MEMORY),
    ("ltp_getpeername01", Some(Side::Client), MEMORY),
    ("ltp_ppoll01", Some(Side::Client), MEMORY),
    ("ltp_recv", Some(Side::Client), MEMORY),
    ("ltp_select", Some(Side::Client), NUMBERS),
    ("ltp_send", Some(Side::Client), MEMORY),
    ("numbers_closed_unseen_and_used_again", None, NUMBERS),
    ("numbers_epoll_by_ring_or_without", None, NUMBERS),
    ("numbers_poll_and_select", None, NUMBERS),
    ("numbers_whole_life", None, NUMBERS),
    ("options_bind_to_device", None, ADDRESSES),
    (
        "streams_two_hundred_sockets_one_epoll",
        Some(Side::Server),
        SHARED,
    ),
    ("corner_14_write_of_more", None, NUMBERS),
    ("corner_14_write_that_appends", None, NUMBERS),
    ("room_", None, NUMBERS),
    ("urgent_large", None, BUFFERS),
];

const ADDRESSES: &str = "it names addresses or devices that are another host's";
const BACKLOG: &str = "kernel TCP takes two or three, as their packets come";
const CONFINED: &str = "the other host is asked by calls that the case forbids itself";
const ENDS: &str = "the process that ends holds no end of a connection";
const MEMORY: &str = "what is asked for is memory of the caller";
const BUFFERS: &str = "TCP's buffers between hosts are too small for it, and each time that one is full the last byte is urgent";
const NUMBERS: &str = "it counts on numbers of descriptors, or closes those of the test";
const ONE_HOST: &str = "it is the caller's connect that waits, which would stay on one host";
const PASSED_ON: &str = "a descriptor of the other host cannot be passed on";
const SHARED: &str = "a descriptor of the other host cannot be shared";
const SIGNALS: &str = "signals and cancellation reach the caller, not the call";
const APART: &str = "over a cable the bytes may come one by one";
const LATER: &str = "over a cable it comes a moment later";
const SLOW: &str = "each call is sent to the other host: it takes too long";
const TWO_HOSTS: &str = "both calls have to be of one host";

/// Why a case is left out with this end on the other host, or `None` if it is not.
#[must_use]
pub fn reason(case: &str, far: Side) -> Option<&'static str> {
    let fits = |side: &Option<Side>| side.is_none_or(|side| side == far);
    LEFT_OUT
        .iter()
        .find(|(name, side, _)| case.starts_with(name) && fits(side))
        .map(|(_, _, reason)| *reason)
}

/// The beginnings of names of which some cases are left out.
pub fn names() -> impl Iterator<Item = &'static str> {
    LEFT_OUT.iter().map(|(name, _, _)| *name)
}
