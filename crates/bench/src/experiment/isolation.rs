//! Programs that need short tails beside programs that need throughput, with any number of the first.

use super::programs::{Group, Programs, count_of, merged};
use crate::case::Case;
use crate::ends::Ends;
use crate::measurement::{Latency, Measurement, to_float};
use crate::options::Transport;
use crate::plan::Figures;
use crate::session::Class;

/// Programs that want throughput, each with a server of its own.
const T_APPS: usize = 8;
/// Seconds that the streams run before the ping-pong begins, and after it has ended.
const MARGIN: f64 = 0.1;

/// The total throughput of all streams, and the latency of the ping-pong beside them.
pub fn run(ends: &Ends<'_>, transport: Transport, case: Case) -> Figures {
    let l_apps = match case {
        Case::Isolation8 => 8,
        _ => 1,
    };
    let stream = Group {
        class: Some(Class::Throughput),
        ahead: MARGIN,
        behind: MARGIN,
        ..Group::new("stream")
    };
    let pingpong = Group {
        class: Some(Class::Latency),
        ..Group::new("pingpong/4096")
    };
    let groups = [vec![stream; T_APPS], vec![pingpong; l_apps]].concat();
    let mut programs = Programs::start(ends, transport, &groups)?;
    let outcomes = programs.drive()?;
    let (written, round_trips) = outcomes.split_at(T_APPS);
    let read = programs.streams_read(written)?;
    let cpu = programs.cpu();
    let round_trips = round_trips.concat();
    count_of(&round_trips)?;
    let latency = Latency::of(&merged(&round_trips), 2.0);
    // Streams begin and end together, and each is measured by its own reader.
    let gigabits = |count: u64| to_float(count) * 8.0 / 1e9;
    let work: f64 = read.iter().map(|one| gigabits(one.count)).sum();
    let rate: f64 = read
        .iter()
        .map(|one| gigabits(one.count) / one.seconds)
        .sum();
    Ok(vec![(
        case,
        Measurement::new(work, work / rate, Some(latency), cpu),
    )])
}
