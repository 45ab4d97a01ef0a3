//! One run of one pattern: receivers, then senders, each a program of its own. Their output becomes the figures.

use super::cell::{Pattern, SHORT, Work};
use super::profiled::Profiler;
use crate::ends::{CpuSince, Ends};
use crate::error::RunError;
use crate::experiment::{count_of, merged, second_line};
use crate::measurement::{Latency, Measurement, to_float};
use crate::options::Transport;
use crate::process::Process;
use crate::session::{Class, Over, READY_LIMIT};
use crate::worker::Outcome;
use crate::worker::address::Address;
use std::net::SocketAddr;

/// Long flows of `isolation`.
const LONG: usize = 8;
/// Seconds that long flows go on after the short ones.
const BEHIND: f64 = 0.1;

/// Programs of one kind that talk to each other.
struct Group {
    workload: String,
    servers: usize,
    clients: usize,
    class: Class,
    behind: f64,
}

impl Group {
    fn stream(size: usize, clients: usize, servers: usize) -> Self {
        Group {
            workload: format!("stream/{size}"),
            servers,
            clients,
            class: Class::Throughput,
            behind: 0.0,
        }
    }

    fn requests(size: usize, clients: usize) -> Self {
        Group {
            workload: format!("pingpong/{size}"),
            servers: 1,
            clients,
            class: Class::Latency,
            behind: 0.0,
        }
    }
}

/// The groups of a pattern; those that the rate is of come first.
fn groups(work: &Work) -> Vec<Group> {
    let (flows, size) = (work.flows, work.size);
    match work.pattern {
        Pattern::Single => vec![Group::stream(size, 1, 1)],
        // Pairs, each a group, so that no pair waits for the end of another.
        Pattern::OneToOne => (0..flows).map(|_| Group::stream(size, 1, 1)).collect(),
        Pattern::Incast => vec![Group::stream(size, flows, 1)],
        Pattern::Outcast => vec![Group::stream(size, 1, flows)],
        Pattern::AllToAll => vec![Group::stream(size, flows, flows)],
        Pattern::Mixed => vec![
            Group {
                behind: BEHIND,
                ..Group::stream(size, 1, 1)
            },
            Group::requests(SHORT, flows),
        ],
        Pattern::Isolation => {
            let long = (0..LONG).map(|_| Group {
                behind: BEHIND,
                ..Group::stream(size, 1, 1)
            });
            let short = (0..flows).map(|_| Group::requests(SHORT, 1));
            long.chain(short).collect()
        }
        Pattern::Rpc => vec![Group::requests(size, flows)],
    }
}

struct Running {
    servers: Vec<Process>,
    clients: Vec<Process>,
}

/// The processor of the next program of each host; `None`: any of its host.
#[derive(Clone, Copy)]
struct Places {
    pinned: bool,
    server: usize,
    client: usize,
}

impl Places {
    fn next(pinned: bool, of: &mut usize) -> Option<usize> {
        *of += 1;
        pinned.then_some(*of - 1)
    }
}

/// Makes a run, and a profile of it where one is wanted.
pub fn run(
    ends: &Ends<'_>,
    transport: Transport,
    work: &Work,
    pinned: bool,
    profiler: Option<&mut Profiler<'_>>,
) -> Result<Measurement, RunError> {
    let mut places = Places {
        pinned,
        server: 0,
        client: 0,
    };
    let mut running = Vec::new();
    for group in &groups(work) {
        running.push(start(ends, transport, group, &mut places)?);
    }
    let since = {
        let servers: Vec<&Process> = running.iter().flat_map(|group| &group.servers).collect();
        let clients: Vec<&Process> = running.iter().flat_map(|group| &group.clients).collect();
        CpuSince::now(ends, transport, &servers, &clients)
    };
    let mut profiling = profiler.map(Profiler::begin).transpose()?;
    for client in running.iter_mut().flat_map(|group| &mut group.clients) {
        client.say("go")?;
    }
    let limit = ends.run_limit();
    for process in running
        .iter_mut()
        .flat_map(|group| group.clients.iter_mut().chain(&mut group.servers))
    {
        process.wait(limit)?;
    }
    let cpu = {
        let servers: Vec<&Process> = running.iter().flat_map(|group| &group.servers).collect();
        let clients: Vec<&Process> = running.iter().flat_map(|group| &group.clients).collect();
        since.used(&servers, &clients)
    };
    if let Some(profiling) = &mut profiling {
        let processes = running
            .iter()
            .flat_map(|group| group.servers.iter().chain(&group.clients));
        let processes: Vec<libc::pid_t> = processes.map(Process::pid).collect();
        profiling.finish(&processes)?;
    }
    let printed = |processes: &[Process]| -> Result<Vec<Outcome>, RunError> {
        processes.iter().map(second_line).collect()
    };
    let mut received: Vec<Outcome> = Vec::new();
    let mut asked: Vec<Outcome> = Vec::new();
    for (group, running) in groups(work).iter().zip(&running) {
        let clients = printed(&running.clients)?;
        if group.class == Class::Latency {
            asked.extend(clients);
            continue;
        }
        let servers = printed(&running.servers)?;
        let count = |outcomes: &[Outcome]| outcomes.iter().map(|one| one.count).sum::<u64>();
        let (sent, read) = (count(&clients), count(&servers));
        if sent != read || sent == 0 {
            return Err(RunError::Wrong(format!(
                "{sent} bytes written, {read} read"
            )));
        }
        received.extend(servers);
    }
    let latency = (!asked.is_empty()).then(|| Latency::of(&merged(&asked), 1.0));
    if !asked.is_empty() {
        count_of(&asked)?;
    }
    // Each program measures its own time. They begin together.
    let gigabits = |bytes: f64| bytes * 8.0 / 1e9;
    let (per_count, measured) = if received.is_empty() {
        (to_float(u64::try_from(work.size).unwrap_or(0)), asked)
    } else {
        (1.0, received)
    };
    let of = |one: &Outcome| gigabits(to_float(one.count) * per_count);
    let amount: f64 = measured.iter().map(of).sum();
    let rate: f64 = measured.iter().map(|one| of(one) / one.seconds).sum();
    Ok(Measurement::new(amount, amount / rate, latency, cpu))
}

fn start(
    ends: &Ends<'_>,
    transport: Transport,
    group: &Group,
    places: &mut Places,
) -> Result<Running, RunError> {
    let over = Over {
        transport,
        class: Some(group.class),
    };
    let workload = group.workload.as_str();
    let (wanted, connections) = (
        Address::Tcp(SocketAddr::new(ends.address, 0)).to_string(),
        group.clients.to_string(),
    );
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..group.servers {
        let place = Places::next(places.pinned, &mut places.server);
        let words = ["serve", workload, &wanted, &connections];
        let mut server = ends.server.start_worker_at(over, &words, place)?;
        addresses.push(server.await_line("ready", READY_LIMIT)?);
        servers.push(server);
    }
    let ports: Vec<u16> = addresses
        .iter()
        .filter_map(|address| match address.parse() {
            Ok(Address::Tcp(address)) => Some(address.port()),
            _ => None,
        })
        .collect();
    for &port in &ports {
        ends.await_listener(transport, port)?;
    }
    let seconds = (ends.seconds() + group.behind).to_string();
    let addresses = addresses.join(",");
    let mut clients = Vec::new();
    for _ in 0..group.clients {
        let place = Places::next(places.pinned, &mut places.client);
        let words = ["drive", workload, &addresses, &seconds];
        clients.push(ends.client.start_worker_at(over, &words, place)?);
    }
    for client in &mut clients {
        client.await_line("ready", READY_LIMIT)?;
    }
    for (server, port) in servers.iter().zip(ports) {
        ends.check_carrier(transport, server, port)?;
    }
    Ok(Running { servers, clients })
}
