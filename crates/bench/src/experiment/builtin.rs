//! Stream, ping-pong and connections: the built-in workload programs.

use super::CpuSince;
use crate::error::RunError;
use crate::kernel_tcp;
use crate::measurement::{Latency, Measurement, latency_histogram, to_float};
use crate::options::{Case, Transport};
use crate::process::Process;
use crate::session::{READY_LIMIT, Session};
use crate::worker::address::Address;
use crate::worker::{CLIENTS, Outcome};
use hdrhistogram::Histogram;
use std::path::PathBuf;

type Figures = Result<Vec<(Case, Measurement)>, RunError>;

/// Connects two programs under NetChannel, to learn now whether any can be measured.
pub fn check_netchannel(session: &Session<'_>) -> Result<(), RunError> {
    Programs::start(session, Transport::Netchannel, "pingpong", 1).map(drop)
}

/// Throughput as the reader sees it: from its first byte to the end.
pub fn stream(session: &Session<'_>, transport: Transport) -> Figures {
    let mut pair = Programs::start(session, transport, "stream", 1)?;
    let written = pair.drive(session)?;
    pair.server.wait(session.run_limit())?;
    let printed = pair.server.output()?;
    let read = outcome(&pair.server, printed.lines().nth(1).unwrap_or_default())?;
    let sent: u64 = written.iter().map(|outcome| outcome.count).sum();
    if read.count != sent || sent == 0 {
        let received = read.count;
        return Err(RunError::Wrong(format!(
            "{sent} bytes written, {received} read"
        )));
    }
    let gigabits = to_float(read.count) * 8.0 / 1e9;
    let cpu = pair.cpu.seconds(&pair.processes());
    Ok(vec![(
        Case::Stream,
        Measurement::new(gigabits, read.seconds, None, cpu),
    )])
}

/// Latency one way: half of each round trip.
pub fn pingpong(session: &Session<'_>, transport: Transport) -> Figures {
    let mut pair = Programs::start(session, transport, "pingpong", 1)?;
    let outcomes = pair.drive(session)?;
    pair.server.wait(session.run_limit())?;
    let latency = Latency::of(&merged(&outcomes), 2.0);
    let count = total(&outcomes)?;
    let seconds = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let cpu = pair.cpu.seconds(&pair.processes());
    Ok(vec![(
        Case::Pingpong,
        Measurement::new(count, seconds, Some(latency), cpu),
    )])
}

/// Cycles per second of all clients together.
pub fn connections(session: &Session<'_>, transport: Transport) -> Figures {
    let mut programs = Programs::start(session, transport, "connections", CLIENTS)?;
    let outcomes = programs.drive(session)?;
    let cpu = programs.cpu.seconds(&programs.processes());
    if programs.server.try_wait()?.is_some() {
        return Err(RunError::Wrong(programs.server.complaint()));
    }
    let latency = Latency::of(&merged(&outcomes), 1.0);
    let count = total(&outcomes)?;
    // Each client measures its own time; they begin together and differ by less than a cycle.
    let rate: f64 = outcomes
        .iter()
        .map(|one| to_float(one.count) / one.seconds)
        .sum();
    Ok(vec![(
        Case::Connections,
        Measurement::new(count, count / rate, Some(latency), cpu),
    )])
}

/// A server and its clients, connected and waiting for the signal.
struct Programs<'a> {
    server: Process,
    clients: Vec<Process>,
    cpu: CpuSince<'a>,
}

impl<'a> Programs<'a> {
    fn start(
        session: &'a Session<'a>,
        transport: Transport,
        workload: &str,
        clients: u8,
    ) -> Result<Self, RunError> {
        let address = match transport {
            Transport::Tcp | Transport::Netchannel => "tcp:127.0.0.1:0".to_owned(),
            Transport::Unix => {
                let path = session.directory().join("workload.sock");
                remove(&path)?;
                format!("unix:{}", path.display())
            }
        };
        let mut server = session.start_worker(transport, &["serve", workload, &address])?;
        let address = server.await_line("ready", READY_LIMIT)?;
        let seconds = session.seconds.to_string();
        let mut started = Vec::new();
        for index in 0..clients {
            let index = index.to_string();
            let mut words = vec!["drive", workload, &address, &seconds];
            if clients > 1 {
                words.push(&index);
            }
            started.push(session.start_worker(transport, &words)?);
        }
        for client in &mut started {
            if let Err(error) = client.await_line("ready", READY_LIMIT) {
                return Err(blame(&mut server, error));
            }
        }
        // Every client holds a connection now.
        if transport == Transport::Netchannel
            && let Ok(Address::Tcp(address)) = address.parse()
        {
            kernel_tcp::none_established(address.port())?;
        }
        let cpu = {
            let all: Vec<&Process> = std::iter::once(&server).chain(&started).collect();
            CpuSince::now(session, transport, &all)
        };
        Ok(Programs {
            server,
            clients: started,
            cpu,
        })
    }

    /// Lets the clients work and collects what they print.
    fn drive(&mut self, session: &Session<'_>) -> Result<Vec<Outcome>, RunError> {
        for client in &mut self.clients {
            client.say("go")?;
        }
        let mut outcomes = Vec::new();
        for client in &mut self.clients {
            if let Err(error) = client.wait(session.run_limit()) {
                return Err(blame(&mut self.server, error));
            }
            let printed = client.output()?;
            outcomes.push(outcome(client, printed.lines().nth(1).unwrap_or_default())?);
        }
        Ok(outcomes)
    }

    fn processes(&self) -> Vec<&Process> {
        std::iter::once(&self.server).chain(&self.clients).collect()
    }
}

/// If the server has failed, that is the cause; a client only noticed.
fn blame(server: &mut Process, noticed: RunError) -> RunError {
    match server.try_wait() {
        Ok(Some(exit)) if !exit.status.success() => RunError::Wrong(server.complaint()),
        _ => noticed,
    }
}

fn remove(path: &PathBuf) -> Result<(), RunError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(RunError::Files(error)),
        _ => Ok(()),
    }
}

fn outcome(process: &Process, line: &str) -> Result<Outcome, RunError> {
    serde_json::from_str(line).map_err(|_| process.unreadable(line))
}

fn total(outcomes: &[Outcome]) -> Result<f64, RunError> {
    let count: u64 = outcomes.iter().map(|outcome| outcome.count).sum();
    if count == 0 {
        return Err(RunError::Wrong(
            "nothing was done in the time given".to_owned(),
        ));
    }
    Ok(to_float(count))
}

fn merged(outcomes: &[Outcome]) -> Histogram<u64> {
    let mut histogram = latency_histogram();
    for (value, count) in outcomes.iter().flat_map(|outcome| &outcome.histogram) {
        histogram.saturating_record_n(*value, *count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_several_clients_are_added() {
        let one = |pairs: &[(u64, u64)]| Outcome {
            count: pairs.iter().map(|pair| pair.1).sum(),
            seconds: 1.0,
            histogram: pairs.to_vec(),
        };
        let outcomes = [one(&[(100, 97), (5000, 1)]), one(&[(100, 1), (900, 1)])];
        let histogram = merged(&outcomes);
        assert_eq!(histogram.len(), 100);
        let latency = Latency::of(&histogram, 1.0);
        assert_eq!((latency.p50, latency.p99), (100.0, 900.0));
        assert!((latency.p999 - 5000.0).abs() < 5.0);
        assert_eq!(total(&outcomes).unwrap(), 100.0);
    }

    #[test]
    fn nothing_done_is_an_error_and_not_a_rate_of_zero() {
        let idle = Outcome {
            count: 0,
            seconds: 1.0,
            histogram: Vec::new(),
        };
        assert!(total(&[idle]).is_err());
    }
}
