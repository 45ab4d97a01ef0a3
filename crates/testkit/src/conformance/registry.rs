//! The list of all cases.

use crate::case::Case;

const FILES: &[&[Case]] = &[
    crate::corner_01_dup2::CASES,
    crate::corner_02_close::CASES,
    crate::corner_02_shared::CASES,
    crate::corner_03_fork::CASES,
    crate::corner_03_left::CASES,
    crate::corner_04_prefork::CASES,
    crate::corner_04_killed_loops::CASES,
    crate::corner_04_leavers::CASES,
    crate::corner_04_one_queue::CASES,
    crate::corner_04_queue::CASES,
    crate::corner_04_sole_acceptor::CASES,
    crate::corner_05_exec::CASES,
    crate::corner_06_rights::CASES,
    crate::corner_06_unconnected::CASES,
    crate::corner_07_epoll_sets::CASES,
    crate::corner_07_relatives::CASES,
    crate::corner_07_shared_sets::CASES,
    crate::corner_08_nested::CASES,
    crate::corner_09_edges::CASES,
    crate::corner_10_deaf::CASES,
    crate::corner_10_half_close::CASES,
    crate::corner_11_linger::CASES,
    crate::corner_12_again::CASES,
    crate::corner_12_connect::CASES,
    crate::corner_12_connecting::CASES,
    crate::corner_12_dissolve::CASES,
    crate::corner_12_former::CASES,
    crate::corner_13_handlers::CASES,
    crate::corner_13_signals::CASES,
    crate::corner_13_timeouts::CASES,
    crate::corner_14_arguments::CASES,
    crate::corner_14_beside::CASES,
    crate::corner_14_calls::CASES,
    crate::corner_14_ended::CASES,
    crate::corner_14_faults::CASES,
    crate::corner_14_peeking::CASES,
    crate::corner_14_told::CASES,
    crate::corner_14_programs::CASES,
    crate::corner_14_resets::CASES,
    crate::corner_14_splicing::CASES,
    crate::corner_14_states::CASES,
    crate::corner_14_vectors::CASES,
    crate::corner_14_waits::CASES,
    crate::corner_15_addresses::CASES,
    crate::corner_15_limits::CASES,
    crate::corner_16_confined::CASES,
    crate::corner_17_waits::CASES,
    crate::corner_17_sets::CASES,
    crate::corner_17_fresh::CASES,
    crate::corner_17_names::CASES,
    crate::corner_17_held::CASES,
    crate::corner_17_dissolved::CASES,
    crate::corner_15_vfork::CASES,
    crate::deferred::CASES,
    crate::deferred_repeated::CASES,
    crate::deferred_shared::CASES,
    crate::deferred_silent::CASES,
    crate::descriptors::CASES,
    crate::dual_stack::CASES,
    crate::foreign_calls::CASES,
    crate::fresh::CASES,
    crate::held::CASES,
    crate::held_and_full::CASES,
    crate::held_and_lost::CASES,
    crate::room::CASES,
    crate::listeners::CASES,
    crate::low_water::CASES,
    crate::ltp::moving::CASES,
    crate::ltp::naming::CASES,
    crate::ltp::options::CASES,
    crate::ltp::readiness::CASES,
    crate::numbers::CASES,
    crate::options::CASES,
    crate::streams::CASES,
    crate::urgent::CASES,
    crate::urgent_heard::CASES,
    crate::urgent_inline::CASES,
];

/// All cases in order.
pub fn all() -> impl Iterator<Item = &'static Case> {
    FILES.iter().flat_map(|file| file.iter())
}

/// The case with a name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|case| case.name == name)
}

/// The cases whose names contain one of the words, or all cases if there are no words.
pub fn select(words: &[String]) -> Vec<&'static Case> {
    let wanted = |case: &&Case| {
        words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str()))
    };
    all().filter(wanted).collect()
}
