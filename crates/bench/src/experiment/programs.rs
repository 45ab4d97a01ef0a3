//! Built-in workload programs: servers and their clients, started, driven together, and asked what they did.

use crate::ends::{CpuSince, Ends};
use crate::error::RunError;
use crate::measurement::{Cpu, latency_histogram, to_float};
use crate::options::Transport;
use crate::process::Process;
use crate::session::{Class, Over, READY_LIMIT};
use crate::worker::Outcome;
use crate::worker::address::Address;
use hdrhistogram::Histogram;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// One server and its clients.
#[derive(Debug, Clone)]
pub struct Group {
    /// The workload.
    pub workload: &'static str,
    /// The number of clients.
    pub clients: u8,
    /// The class that they request of NetChannel.
    pub class: Option<Class>,
    /// One more word for each client, of which it depends what that says.
    pub more: Option<&'static str>,
    /// Seconds that they begin before the others.
    pub ahead: f64,
    /// Seconds that they go on after the others.
    pub behind: f64,
}

impl Group {
    /// A group of one client, without options.
    pub fn new(workload: &'static str) -> Self {
        Group {
            workload,
            clients: 1,
            class: None,
            more: None,
            ahead: 0.0,
            behind: 0.0,
        }
    }
}

/// Servers and their clients, connected and waiting for the signal.
pub struct Programs<'a> {
    ends: &'a Ends<'a>,
    groups: Vec<Running>,
    since: CpuSince<'a>,
}

struct Running {
    ahead: f64,
    server: Process,
    clients: Vec<Process>,
}

impl<'a> Programs<'a> {
    /// Starts groups. Those that begin ahead of others come first.
    pub fn start(
        ends: &'a Ends<'a>,
        transport: Transport,
        groups: &[Group],
    ) -> Result<Self, RunError> {
        let mut running = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            running.push(start_group(ends, transport, group, number)?);
        }
        let since = {
            let servers: Vec<&Process> = running.iter().map(|group| &group.server).collect();
            let clients: Vec<&Process> = running.iter().flat_map(|group| &group.clients).collect();
            CpuSince::now(ends, transport, &servers, &clients)
        };
        Ok(Programs {
            ends,
            groups: running,
            since,
        })
    }

    /// Lets the clients work and collects what they print, by group.
    pub fn drive(&mut self) -> Result<Vec<Vec<Outcome>>, RunError> {
        let mut ahead = self
            .groups
            .iter()
            .map(|group| group.ahead)
            .fold(0.0, f64::max);
        for group in &mut self.groups {
            if group.ahead < ahead {
                thread::sleep(Duration::from_secs_f64(ahead - group.ahead));
                ahead = group.ahead;
            }
            for client in &mut group.clients {
                client.say("go")?;
            }
        }
        let limit = self.ends.run_limit();
        let mut outcomes = Vec::new();
        for Running {
            server, clients, ..
        } in &mut self.groups
        {
            let mut of_group = Vec::new();
            for client in clients {
                if let Err(error) = client.wait(limit) {
                    return Err(blame(server, error));
                }
                of_group.push(second_line(client)?);
            }
            outcomes.push(of_group);
        }
        Ok(outcomes)
    }

    /// Waits for the readers of streams and compares what they read with what was written; groups are those that `written` is of.
    pub fn streams_read(&mut self, written: &[Vec<Outcome>]) -> Result<Vec<Outcome>, RunError> {
        let limit = self.ends.run_limit();
        let mut outcomes = Vec::new();
        for (group, written) in self.groups.iter_mut().zip(written) {
            group.server.wait(limit)?;
            let read = second_line(&group.server)?;
            let sent: u64 = written.iter().map(|outcome| outcome.count).sum();
            if read.count != sent || sent == 0 {
                let received = read.count;
                return Err(RunError::Wrong(format!(
                    "{sent} bytes written, {received} read"
                )));
            }
            outcomes.push(read);
        }
        Ok(outcomes)
    }

    /// Waits for servers that end by themselves.
    pub fn wait_for_servers(&mut self) -> Result<(), RunError> {
        let limit = self.ends.run_limit();
        for group in &mut self.groups {
            group.server.wait(limit)?;
        }
        Ok(())
    }

    /// An error if a server that must go on has ended.
    pub fn check_servers(&mut self) -> Result<(), RunError> {
        for group in &mut self.groups {
            if group.server.try_wait()?.is_some() {
                return Err(RunError::Wrong(group.server.complaint()));
            }
        }
        Ok(())
    }

    /// CPU time since the signal.
    pub fn cpu(&self) -> Cpu {
        let servers: Vec<&Process> = self.groups.iter().map(|group| &group.server).collect();
        let clients: Vec<&Process> = self
            .groups
            .iter()
            .flat_map(|group| &group.clients)
            .collect();
        self.since.used(&servers, &clients)
    }
}

fn start_group(
    ends: &Ends<'_>,
    transport: Transport,
    group: &Group,
    number: usize,
) -> Result<Running, RunError> {
    let workload = group.workload;
    let over = Over {
        transport,
        class: group.class,
    };
    let address = match transport {
        Transport::Tcp | Transport::Netchannel | Transport::Slirp4netns | Transport::Pasta => {
            Address::Tcp(ends.listening_address(transport)).to_string()
        }
        Transport::Unix => {
            let path = ends
                .server
                .directory()
                .join(format!("workload{number}.sock"));
            remove(&path)?;
            format!("unix:{}", path.display())
        }
    };
    let mut server = ends
        .server
        .start_worker(over, &["serve", workload, &address])?;
    let address = server.await_line("ready", READY_LIMIT)?;
    let mut parsed = address.parse();
    if let Ok(Address::Tcp(listening)) = &mut parsed {
        listening.set_ip(ends.address(transport));
    }
    let address = parsed.as_ref().map_or(address, Address::to_string);
    if let Ok(Address::Tcp(address)) = parsed {
        ends.await_listener(transport, address.port())?;
    }
    let seconds = (ends.seconds() + group.ahead + group.behind).to_string();
    let mut clients = Vec::new();
    for index in 0..group.clients {
        let index = index.to_string();
        let mut words = vec!["drive", workload, &address, &seconds];
        if group.clients > 1 {
            words.push(&index);
        }
        words.extend(group.more);
        clients.push(ends.client.start_worker(over, &words)?);
    }
    for client in &mut clients {
        if let Err(error) = client.await_line("ready", READY_LIMIT) {
            return Err(blame(&mut server, error));
        }
    }
    // Every client holds a connection now.
    if let Ok(Address::Tcp(address)) = parsed {
        ends.check_carrier(transport, &server, address.port())?;
    }
    Ok(Running {
        ahead: group.ahead,
        server,
        clients,
    })
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

/// The first line reports that it is ready, the second its result.
pub fn second_line(process: &Process) -> Result<Outcome, RunError> {
    let printed = process.output()?;
    let line = printed.lines().nth(1).unwrap_or_default();
    serde_json::from_str(line).map_err(|_| process.unreadable(line))
}

/// The amount of work; zero is an error.
pub fn count_of(outcomes: &[Outcome]) -> Result<f64, RunError> {
    let count: u64 = outcomes.iter().map(|outcome| outcome.count).sum();
    if count == 0 {
        return Err(RunError::Wrong(
            "nothing was done in the time given".to_owned(),
        ));
    }
    Ok(to_float(count))
}

/// The times of all clients in one histogram.
pub fn merged(outcomes: &[Outcome]) -> Histogram<u64> {
    let mut histogram = latency_histogram();
    for (value, count) in outcomes.iter().flat_map(|outcome| &outcome.histogram) {
        histogram.saturating_record_n(*value, *count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Latency;

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
        assert_eq!(count_of(&outcomes).unwrap(), 100.0);
    }

    #[test]
    fn nothing_done_is_an_error_and_not_a_rate_of_zero() {
        let idle = Outcome {
            count: 0,
            seconds: 1.0,
            histogram: Vec::new(),
        };
        assert!(count_of(&[idle]).is_err());
    }
}
