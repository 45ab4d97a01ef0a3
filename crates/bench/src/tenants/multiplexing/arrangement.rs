//! Tenants with a server each, their stacks, which have quotas, and clients outside that play the trace.

use super::quota::Quota;
use crate::cpu;
use crate::error::{BenchError, RunError};
use crate::experiment::merged;
use crate::interrupt;
use crate::measurement::to_float;
use crate::options::{Transport, WorkerCommand};
use crate::process::Process;
use crate::session::{NetChannel, READY_LIMIT, Session};
use crate::tenants::served::serve;
use crate::tenants::switch::{answers, connect};
use netchannel_namespaces::Hosts;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Requests of a tenant at a time at most.
const CONCURRENCY: usize = 512;
/// The port of the first tenant.
const PORT: u16 = 7100;

/// What became of the trace.
pub struct Played {
    /// What 99 of 100 requests of each tenant took, in milliseconds; none of those that were not answered took a finite time.
    pub p99: Vec<f64>,
    /// Processor time of all stacks, in seconds.
    pub cpu_seconds: f64,
}

/// A daemon, its stacks, and the servers of its tenants.
pub struct Arrangement<'a> {
    // Before the daemon, whose stacks live in them.
    quotas: Vec<Quota>,
    _servers: Vec<Process>,
    processes: Vec<libc::pid_t>,
    _daemon: NetChannel,
    outside: Session<'a>,
    address: String,
    trace: &'a [Vec<f64>],
}

impl<'a> Arrangement<'a> {
    /// Starts it with so many stacks: one for each tenant, or for all.
    pub fn start(
        (netchannel, worker): (&Path, &'a WorkerCommand),
        (hosts, folder): (&Hosts, &Path),
        (stacks, congestion_control): (usize, &str),
        trace: &'a [Vec<f64>],
    ) -> Result<Self, BenchError> {
        fs::create_dir_all(folder).map_err(BenchError::Directory)?;
        let tables = tables(trace.len(), stacks, congestion_control);
        let daemon = serve(netchannel, Some(&hosts.a), folder, &tables);
        let daemon = daemon.map_err(BenchError::Options)?;
        let processes = processes(&daemon, stacks)?;
        let mut quotas = Vec::new();
        for (number, process) in processes.iter().enumerate() {
            let name = format!("netchannel-bench-{}-{stacks}-{number}", std::process::id());
            let quota = Quota::make(&name).and_then(|quota| {
                quota.add(*process)?;
                Ok(quota)
            });
            let quota = quota.map_err(|error| {
                BenchError::Options(format!(
                    "no control group with a quota can be made: {error}"
                ))
            })?;
            quotas.push(quota);
        }
        let mut servers = Vec::new();
        for number in 0..trace.len() {
            let tenant = daemon.beside(&tenant(number));
            let inside = Session::on(&hosts.a, 0.0, folder, worker, Ok(tenant));
            let listening = format!("tcp:0.0.0.0:{}", port(number));
            let over = Transport::Netchannel.into();
            let server = inside.start_worker(over, &["serve", "requests", &listening]);
            let mut server = server.map_err(super::wrong)?;
            server
                .await_line("ready", READY_LIMIT)
                .map_err(super::wrong)?;
            servers.push(server);
        }
        Ok(Arrangement {
            quotas,
            _servers: servers,
            processes,
            _daemon: daemon,
            outside: Session::outside(&hosts.b, 0.0, folder, worker),
            address: hosts.a.address().to_string(),
            trace,
        })
    }

    /// Number of stacks.
    pub fn stacks(&self) -> usize {
        self.processes.len()
    }

    /// Gives each stack a part of a processor, or as much as it wants.
    pub fn limit(&self, parts: Option<&[f64]>) -> io::Result<()> {
        for (number, quota) in self.quotas.iter().enumerate() {
            match parts.and_then(|parts| parts.get(number)) {
                Some(part) => quota.limit(*part)?,
                None => quota.lift()?,
            }
        }
        Ok(())
    }

    /// Whether the requests of all tenants of a stack took no longer than this.
    pub fn holds(&self, stack: usize, played: &Played, p99: f64) -> bool {
        let mut of_stack = played.p99.iter().enumerate();
        of_stack.all(|(tenant, took)| *took <= p99 || tenant % self.stacks() != stack)
    }

    /// Plays the trace once.
    pub fn play(&self, seconds: f64) -> Result<Played, RunError> {
        let duration = seconds.to_string();
        let mut clients = Vec::new();
        for (number, rates) in self.trace.iter().enumerate() {
            let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
            let load = format!("{CONCURRENCY}:{}", rates.join(","));
            let address = format!("tcp:{}:{}", self.address, port(number));
            let words = ["drive", "attempts", &address, &duration, &load];
            clients.push(connect(&self.outside, &words)?);
        }
        let before = self.cpu();
        for client in &mut clients {
            client.say("go")?;
        }
        let limit = Duration::from_secs_f64(seconds) + 2 * READY_LIMIT;
        let mut p99 = Vec::new();
        for client in &mut clients {
            client.wait(limit)?;
            let answers = answers(client)?;
            let histogram = merged(std::slice::from_ref(&answers.outcome));
            let failed = answers.refused + answers.reset + answers.lost;
            let all = answers.outcome.count + failed;
            let took = histogram
                .value_at_quantile(0.99 * to_float(all) / to_float(histogram.len()).max(1.0));
            p99.push(if 100 * failed > all {
                f64::INFINITY
            } else {
                to_float(took) / 1e6
            });
        }
        Ok(Played {
            p99,
            cpu_seconds: self.cpu().saturating_sub(before).as_secs_f64(),
        })
    }

    fn cpu(&self) -> Duration {
        self.processes.iter().map(|one| cpu::of_process(*one)).sum()
    }
}

fn tenant(number: usize) -> String {
    format!("tenant{number}")
}

fn stack(number: usize) -> String {
    format!("stack{number}")
}

fn port(tenant: usize) -> u16 {
    PORT + u16::try_from(tenant).unwrap_or(0)
}

fn tables(tenants: usize, stacks: usize, congestion_control: &str) -> String {
    let mut text = "[host]\nname = \"a\"\n".to_owned();
    for number in 0..stacks {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[[stacks]]\nname = \"{}\"", stack(number));
    }
    for number in 0..tenants {
        let port = port(number);
        let _ = write!(
            text,
            "[[tenants]]\nname = \"{}\"\nstack = \"{}\"\naddresses = [\"10.88.0.{}\"]\npublish = [\"{port}:{port}\"]\n\
             congestion-control = \"{congestion_control}\"\n",
            tenant(number),
            stack(number % stacks),
            number + 1
        );
    }
    text
}

/// The processes of the stacks, by their numbers, once all are there.
fn processes(daemon: &NetChannel, stacks: usize) -> Result<Vec<libc::pid_t>, BenchError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let tree = cpu::tree(daemon.daemon_pid().unwrap_or(0));
        let named = |number: usize| {
            tree.iter()
                .copied()
                .find(|one| is_named(*one, &stack(number)))
        };
        let found: Option<Vec<_>> = (0..stacks).map(named).collect();
        if let Some(found) = found {
            return Ok(found);
        }
        if interrupt::requested() {
            return Err(BenchError::Interrupted);
        }
        if Instant::now() >= deadline {
            return Err(BenchError::Options("the stacks did not start".to_owned()));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is the stack of a name: `netchannel stack KIND --name NAME ...`.
fn is_named(process: libc::pid_t, name: &str) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    words.get(1) == Some(&b"stack".as_slice()) && words.contains(&name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_a_stack_each_or_one() {
        let each = tables(3, 3, "cubic");
        assert_eq!(each.matches("[[stacks]]").count(), 3);
        assert!(each.contains("stack = \"stack2\""), "{each}");
        let all = tables(3, 1, "cubic");
        assert_eq!(all.matches("stack = \"stack0\"").count(), 3, "{all}");
    }
}
