//! The real redis-server and redis-benchmark.
//!
//! redis-benchmark counts requests, not seconds: a short run sets its number.

use super::{CpuSince, installed, wait_watching};
use crate::case::Case;
use crate::ends::Ends;
use crate::error::RunError;
use crate::measurement::{Cpu, Latency, Measurement};
use crate::options::Transport;
use crate::plan::Figures;
use crate::process::Process;
use crate::session::READY_LIMIT;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests of the run that finds out how fast it is, and stores the value that GET reads.
const TRIAL: u32 = 4000;
/// No fewer: P99.9 shall have a few dozen requests beyond it.
const FEWEST: u32 = 20_000;

/// SET, then GET, against one server.
pub fn run(ends: &Ends<'_>, transport: Transport) -> Figures {
    let server_program = installed("redis-server")?;
    let client_program = installed("redis-benchmark")?;
    let directory = ends.server.directory();
    let endpoint = match transport {
        Transport::Unix => Endpoint::Unix(directory.join("redis.sock")),
        Transport::Tcp | Transport::Netchannel | Transport::Slirp4netns | Transport::Pasta => {
            Endpoint::Tcp(SocketAddr::new(ends.address, ends.free_port()?))
        }
    };
    let mut server = ends.server.start_program(
        transport.into(),
        "redis-server",
        server_program.as_os_str(),
        &endpoint.server_arguments(directory),
    )?;
    server.await_condition(READY_LIMIT, || {
        ends.client.within(|| endpoint.answers()).unwrap_or(false)
    })?;
    if let Some(port) = endpoint.port() {
        ends.await_listener(transport, port)?;
    }

    let client = Client {
        ends,
        transport,
        program: &client_program,
        endpoint: &endpoint,
    };
    let mut figures = Vec::new();
    for (case, test) in [(Case::RedisSet, "set"), (Case::RedisGet, "get")] {
        let (trial, _) = client.run(test, TRIAL, &server)?;
        let requests = requests_for(trial.rate, ends.seconds());
        let (result, cpu) = client.run(test, requests, &server)?;
        let work = f64::from(requests);
        let measurement = Measurement::new(work, work / result.rate, Some(result.latency), cpu);
        figures.push((case, measurement));
    }
    Ok(figures)
}

fn requests_for(rate: f64, seconds: f64) -> u32 {
    let wanted = Duration::try_from_secs_f64(rate * seconds).unwrap_or(Duration::ZERO);
    u32::try_from(wanted.as_secs())
        .unwrap_or(u32::MAX)
        .max(FEWEST)
}

enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    fn server_arguments(&self, directory: &Path) -> Vec<OsString> {
        let (port, socket) = match self {
            Endpoint::Tcp(address) => (address.port(), None),
            Endpoint::Unix(path) => (0, Some(path)),
        };
        let mut arguments: Vec<OsString> = [
            "--protected-mode",
            "no",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
        ]
        .map(OsString::from)
        .into();
        arguments.extend(["--port".into(), port.to_string().into()]);
        arguments.extend(["--dir".into(), directory.into()]);
        if let Endpoint::Tcp(address) = self {
            arguments.extend(["--bind".into(), address.ip().to_string().into()]);
        }
        if let Some(path) = socket {
            arguments.extend(["--unixsocket".into(), path.into()]);
        }
        arguments
    }

    fn port(&self) -> Option<u16> {
        match self {
            Endpoint::Tcp(address) => Some(address.port()),
            Endpoint::Unix(_) => None,
        }
    }

    fn client_arguments(&self) -> Vec<OsString> {
        match self {
            Endpoint::Tcp(address) => {
                vec![
                    "-h".into(),
                    address.ip().to_string().into(),
                    "-p".into(),
                    address.port().to_string().into(),
                ]
            }
            Endpoint::Unix(path) => vec!["-s".into(), path.into()],
        }
    }

    /// Whether a server answers already.
    fn answers(&self) -> bool {
        match self {
            Endpoint::Tcp(address) => {
                let Ok(stream) = TcpStream::connect(address) else {
                    return false;
                };
                stream.set_read_timeout(Some(READY_LIMIT)).is_ok() && ping(stream)
            }
            Endpoint::Unix(path) => {
                let Ok(stream) = UnixStream::connect(path) else {
                    return false;
                };
                stream.set_read_timeout(Some(READY_LIMIT)).is_ok() && ping(stream)
            }
        }
    }
}

fn ping(mut stream: impl Read + Write) -> bool {
    let mut answer = [0; 5];
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"+PONG"
}

struct Client<'a> {
    ends: &'a Ends<'a>,
    transport: Transport,
    program: &'a Path,
    endpoint: &'a Endpoint,
}

impl Client<'_> {
    /// One test: its figures and the CPU seconds of all processes.
    fn run(&self, test: &str, requests: u32, server: &Process) -> Result<(Summary, Cpu), RunError> {
        let mut arguments = self.endpoint.client_arguments();
        let requests = requests.to_string();
        let words = [
            "-c",
            "50",
            "-d",
            "4096",
            "--precision",
            "3",
            "-t",
            test,
            "-n",
            &requests,
        ];
        arguments.extend(words.map(OsString::from));
        let cpu = CpuSince::now(self.ends, self.transport, &[server], &[]);
        let mut client = self.ends.client.start_program(
            self.transport.into(),
            "redis-benchmark",
            self.program.as_os_str(),
            &arguments,
        )?;
        let port = self.endpoint.port();
        wait_watching(self.ends, self.transport, server, &mut client, port)?;
        let cpu = cpu.used(&[server], &[&client]);
        let printed = client.output()?;
        let figures = parse(&printed).ok_or_else(|| client.unreadable(&tail(&printed)))?;
        Ok((figures, cpu))
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The output of redis-benchmark for one test.
#[derive(Debug, PartialEq)]
struct Summary {
    rate: f64,
    latency: Latency,
}

/// Reads the report for people: the one in CSV has no P99.9.
fn parse(report: &str) -> Option<Summary> {
    // Progress is written over itself with carriage returns.
    let lines: Vec<&str> = report.split(['\n', '\r']).map(str::trim).collect();
    let rate = lines.iter().find_map(|line| {
        line.strip_prefix("throughput summary:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })?;
    let heading = lines
        .iter()
        .position(|line| line.starts_with("avg") && line.contains("p99"))?;
    let names = lines.get(heading)?.split_whitespace();
    let values = lines.get(heading + 1)?.split_whitespace();
    let summary: Vec<(&str, &str)> = names.zip(values).collect();
    let milliseconds = |wanted: &str| -> Option<f64> {
        summary
            .iter()
            .find(|(name, _)| *name == wanted)?
            .1
            .parse()
            .ok()
    };
    let latency = Latency {
        p50: milliseconds("p50")? * 1e6,
        p99: milliseconds("p99")? * 1e6,
        p999: at_least(&lines, 99.9)? * 1e6,
    };
    Some(Summary { rate, latency })
}

/// The first step of the percentile distribution at or beyond `percent`, in milliseconds.
fn at_least(lines: &[&str], percent: f64) -> Option<f64> {
    lines.iter().find_map(|line| {
        let (step, rest) = line.split_once("% <= ")?;
        let step: f64 = step.parse().ok()?;
        let value = rest.split_whitespace().next()?.parse().ok()?;
        (step >= percent).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // As redis-benchmark 7.0.15 prints it, with some of the steps.
    const REPORT: &str = "\r \rSET: rps=0.0 (overall: -nan) avg_msec=-nan (overall: -nan)\r     \
        \r====== SET ======\n  8000 requests completed in 0.09 seconds\n  50 parallel clients\n\
        \nLatency by percentile distribution:\n\
        0.000% <= 0.087 milliseconds (cumulative count 1)\n\
        50.000% <= 0.263 milliseconds (cumulative count 4131)\n\
        99.805% <= 1.679 milliseconds (cumulative count 7985)\n\
        99.902% <= 1.735 milliseconds (cumulative count 7993)\n\
        100.000% <= 1.807 milliseconds (cumulative count 8000)\n\
        \nCumulative distribution of latencies:\n\
        99.862% <= 1.703 milliseconds (cumulative count 7989)\n\
        100.000% <= 1.807 milliseconds (cumulative count 8000)\n\
        \nSummary:\n  throughput summary: 94117.65 requests per second\n\
        \x20 latency summary (msec):\n\
        \x20         avg       min       p50       p95       p99       max\n\
        \x20       0.301     0.080     0.263     0.503     0.663     1.807\n";

    #[test]
    fn the_report_of_a_test_is_read() {
        let figures = parse(REPORT).unwrap();
        assert_eq!(figures.rate, 94_117.65);
        assert!((figures.latency.p50 - 263_000.0).abs() < 1e-3);
        assert!((figures.latency.p99 - 663_000.0).abs() < 1e-3);
        assert!((figures.latency.p999 - 1_735_000.0).abs() < 1e-3);
    }

    #[test]
    fn a_report_that_is_cut_is_not_taken_for_figures() {
        for cut in ["Summary:", "p99", "0.301", "99.902%"] {
            let (head, tail) = REPORT.split_once(cut).unwrap();
            let part = if cut == "99.902%" {
                tail.replace("% <=", "%")
            } else {
                head.to_owned()
            };
            assert_eq!(parse(&part), None, "without {cut}");
        }
        assert_eq!(
            parse("Could not connect to Redis at 127.0.0.1:1: Connection refused"),
            None
        );
    }

    #[test]
    fn the_number_of_requests_follows_the_rate_found() {
        assert_eq!(requests_for(100_000.0, 2.0), 200_000);
        assert_eq!(requests_for(100_000.0, 0.05), FEWEST);
        assert_eq!(requests_for(f64::INFINITY, 1.0), FEWEST);
    }
}
