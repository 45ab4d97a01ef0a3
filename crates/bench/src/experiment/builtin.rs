//! Stream, ping-pong and connections: the built-in workload programs.

use super::programs::{Group, Programs, count_of, merged};
use crate::case::Case;
use crate::ends::Ends;
use crate::error::RunError;
use crate::measurement::{Latency, Measurement, to_float};
use crate::options::Transport;
use crate::plan::Figures;
use crate::worker::CLIENTS;

/// Connects two programs under NetChannel, to learn now whether any can be measured.
pub fn check_netchannel(ends: &Ends<'_>) -> Result<(), RunError> {
    let groups = [Group::new("pingpong")];
    Programs::start(ends, Transport::Netchannel, &groups).map(drop)
}

/// The stream workload that a case runs.
fn workload(case: Case) -> &'static str {
    match case {
        Case::Messages64 => "stream/64",
        Case::Stream
        | Case::StreamIn
        | Case::Congestion
        | Case::Congestion8
        | Case::Meet
        | Case::MeetDirectly => "stream",
        Case::Colocated | Case::ColocatedDirectly => "stream/8192",
        // Each of eight.
        Case::Overhead1Gbit => "stream/8192@125",
        Case::Overhead2Gbit => "stream/8192@250",
        Case::Overhead4Gbit => "stream/8192@500",
        Case::Overhead8Gbit => "stream/8192@1000",
        _ => "stream/4096",
    }
}

/// Throughput as the reader sees it: from its first byte to the end.
pub fn stream(ends: &Ends<'_>, transport: Transport, case: Case) -> Figures {
    let mut pair = Programs::start(ends, transport, &[Group::new(workload(case))])?;
    let written = pair.drive()?;
    let read = pair.streams_read(&written)?;
    let cpu = pair.cpu();
    let count = to_float(read.iter().map(|outcome| outcome.count).sum());
    let seconds = read.iter().map(|outcome| outcome.seconds).sum();
    let work = if case.is_throughput() {
        count * 8.0 / 1e9
    } else {
        count / 64.0
    };
    Ok(vec![(case, Measurement::new(work, seconds, None, cpu))])
}

/// Programs that write at a time, each to a reader of its own.
const STREAMS: usize = 8;

/// Throughput of several streams together, each measured by its own reader.
pub fn streams(ends: &Ends<'_>, transport: Transport, case: Case) -> Figures {
    let groups = vec![Group::new(workload(case)); STREAMS];
    let mut programs = Programs::start(ends, transport, &groups)?;
    let written = programs.drive()?;
    let read = programs.streams_read(&written)?;
    let cpu = programs.cpu();
    let gigabits = |count: u64| to_float(count) * 8.0 / 1e9;
    let work: f64 = read.iter().map(|one| gigabits(one.count)).sum();
    let rate: f64 = read
        .iter()
        .map(|one| gigabits(one.count) / one.seconds)
        .sum();
    let measured = Measurement::new(work, work / rate, None, cpu);
    Ok(vec![(case, measured)])
}

/// Latency one way: half of each round trip.
pub fn pingpong(ends: &Ends<'_>, transport: Transport, case: Case) -> Figures {
    let workload = match case {
        Case::Pingpong4k => "pingpong/4096",
        _ => "pingpong",
    };
    let mut pair = Programs::start(ends, transport, &[Group::new(workload)])?;
    let outcomes = pair.drive()?;
    pair.wait_for_servers()?;
    let outcomes = outcomes.concat();
    let latency = Latency::of(&merged(&outcomes), 2.0);
    let count = count_of(&outcomes)?;
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let cpu = pair.cpu();
    Ok(vec![(
        case,
        Measurement::new(count, seconds, Some(latency), cpu),
    )])
}

/// Requests on connections of their own, from one client.
pub fn requests(ends: &Ends<'_>, transport: Transport, case: Case) -> Figures {
    let load = match case {
        Case::Latency1 => "1",
        Case::Overhead2k => "100:2000",
        Case::Overhead4k => "100:4000",
        Case::Overhead8k => "100:8000",
        Case::Overhead12k => "100:12000",
        _ => "1000",
    };
    let group = Group {
        more: Some(load),
        ..Group::new("requests")
    };
    let mut programs = Programs::start(ends, transport, &[group])?;
    let outcomes = programs.drive()?.concat();
    let cpu = programs.cpu();
    programs.check_servers()?;
    let latency = Latency::of(&merged(&outcomes), 1.0);
    let count = count_of(&outcomes)?;
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).sum();
    Ok(vec![(
        case,
        Measurement::new(count, seconds, Some(latency), cpu),
    )])
}

/// Servers of several processes, one kind after the other.
pub fn families(ends: &Ends<'_>, transport: Transport) -> Figures {
    let kinds = [
        (Case::FamilyParent, "family-parent"),
        (Case::FamilyChild, "family-child"),
        (Case::FamilyEight, "family-eight"),
    ];
    let mut figures = Vec::new();
    for (case, workload) in kinds {
        figures.extend(set_up(ends, transport, case, workload)?);
    }
    Ok(figures)
}

/// Cycles per second of all clients together.
pub fn connections(ends: &Ends<'_>, transport: Transport) -> Figures {
    set_up(ends, transport, Case::Connections, "connections")
}

fn set_up(ends: &Ends<'_>, transport: Transport, case: Case, workload: &'static str) -> Figures {
    let group = Group {
        clients: CLIENTS,
        ..Group::new(workload)
    };
    let mut programs = Programs::start(ends, transport, &[group])?;
    let outcomes = programs.drive()?.concat();
    let cpu = programs.cpu();
    programs.check_servers()?;
    let latency = Latency::of(&merged(&outcomes), 1.0);
    let count = count_of(&outcomes)?;
    // Each client measures its own time. They begin together and differ by less than a cycle.
    let rate: f64 = outcomes
        .iter()
        .map(|one| to_float(one.count) / one.seconds)
        .sum();
    Ok(vec![(
        case,
        Measurement::new(count, count / rate, Some(latency), cpu),
    )])
}
