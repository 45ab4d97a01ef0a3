//! The built-in workloads: ordinary socket programs that know nothing of NetChannel.
//!
//! ```text
//! serve WORKLOAD[/SIZE] ADDRESS [CONNECTIONS]
//!                                        prints "ready ADDRESS", then serves; streams and round trips so many connections
//! drive WORKLOAD[/SIZE] ADDRESS[,ADDRESS..] SECONDS [N]
//!                                        connects, prints "ready", waits for a line on stdin,
//!                                        works, prints one JSON line
//! calls KIND SECONDS                     the same, without a connection
//! ```
//!
//! They use `std::net` and libc's symbols only, so that they are to a preloaded library what any
//! other program is.

pub mod address;
mod calls;
mod connections;
mod families;
mod payload;
mod pingpong;
mod requests;
mod stream;
mod system;

pub use connections::CLIENTS;
pub use requests::Answers;

use address::{Address, AddressError};
use families::Family;
use hdrhistogram::Histogram;
use payload::CALL;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::Duration;

/// Why a workload program ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The command line is not one of ours.
    #[error(
        "usage: serve WORKLOAD[/SIZE] ADDRESS [CONNECTIONS] | drive WORKLOAD[/SIZE][@RATE] ADDRESS[,ADDRESS..] SECONDS [N] | \
         calls KIND SECONDS"
    )]
    Usage,
    /// An address cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A socket call failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// A byte was lost, doubled or changed.
    #[error("verification failed: {0}")]
    Verification(String),
}

/// What a workload program prints at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes, round trips or cycles.
    pub count: u64,
    /// Seconds they took.
    pub seconds: f64,
    /// Recorded times as pairs of nanoseconds and number; empty when none were taken.
    pub histogram: Vec<(u64, u64)>,
}

/// The program's `main`: `arguments` are those after the (hidden) subcommand's name. Returns the
/// exit status.
pub fn main<I>(arguments: I) -> u8
where
    I: IntoIterator<Item = String>,
{
    system::ignore_broken_pipes();
    let arguments: Vec<String> = arguments.into_iter().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bench-worker {}: {error}", words.join(" "));
            1
        }
    }
}

fn dispatch(words: &[&str]) -> Result<(), WorkerError> {
    match words {
        ["serve", workload, address, connections @ ..] => {
            let address = address.parse()?;
            let connections = match connections {
                [] => 1,
                [count] => count.parse().map_err(|_| WorkerError::Usage)?,
                _ => return Err(WorkerError::Usage),
            };
            match sized(workload)? {
                ("stream", _) => stream::serve(&address, connections),
                ("pingpong", size) => pingpong::serve(&address, size, connections),
                ("connections", None) => connections::serve(&address, CLIENTS),
                ("requests", None) => connections::serve(&address, 1),
                (workload, None) => match Family::of(workload) {
                    Some(family) => families::serve(&address, family),
                    None => Err(WorkerError::Usage),
                },
                _ => Err(WorkerError::Usage),
            }
        }
        ["drive", workload, addresses, seconds, index @ ..] => {
            let addresses = addresses.split(',').map(str::parse);
            let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
            let address = addresses.first().ok_or(WorkerError::Usage)?;
            let duration = duration(seconds)?;
            let outcome = match (sized(workload)?, index) {
                (("requests", None), [load]) => {
                    requests::drive(address, duration, &load.parse()?)?.all()?
                }
                (("attempts", None), [load]) => {
                    return report(&requests::drive(address, duration, &load.parse()?)?);
                }
                (("stream", size), []) => {
                    let size = size.unwrap_or(CALL);
                    if size == 0 || !CALL.is_multiple_of(size) {
                        return Err(WorkerError::Usage);
                    }
                    stream::drive(&addresses, duration, size, rate(workload)?)?
                }
                (("pingpong", size), []) => pingpong::drive(address, size, duration)?,
                ((workload, None), [index])
                    if workload == "connections" || Family::of(workload).is_some() =>
                {
                    let index = index.parse().ok().filter(|index| *index < CLIENTS);
                    connections::drive(
                        address,
                        duration,
                        index.ok_or(WorkerError::Usage)?,
                        workload == "connections",
                    )?
                }
                _ => return Err(WorkerError::Usage),
            };
            report(&outcome)
        }
        ["calls", kind, seconds] => report(&calls::drive(kind, duration(seconds)?)?),
        _ => Err(WorkerError::Usage),
    }
}

fn duration(seconds: &str) -> Result<Duration, WorkerError> {
    let seconds = seconds.parse().map_err(|_| WorkerError::Usage)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| WorkerError::Usage)
}

/// `pingpong/4096` is `pingpong` with messages of that size.
fn sized(workload: &str) -> Result<(&str, Option<usize>), WorkerError> {
    let (workload, _) = workload.split_once('@').unwrap_or((workload, ""));
    match workload.split_once('/') {
        None => Ok((workload, None)),
        Some((name, size)) => {
            let size = size.parse().map_err(|_| WorkerError::Usage)?;
            Ok((name, Some(size)))
        }
    }
}

/// `stream/8192@125` writes 125 megabits in each second; here in bytes.
fn rate(workload: &str) -> Result<Option<f64>, WorkerError> {
    let Some((_, rate)) = workload.split_once('@') else {
        return Ok(None);
    };
    let megabits: f64 = rate.parse().map_err(|_| WorkerError::Usage)?;
    Ok(Some(megabits * 1e6 / 8.0).filter(|rate| *rate > 0.0))
}

/// Says that the server listens, and where.
fn announce(address: &Address) -> Result<(), WorkerError> {
    line(&format!("ready {address}"))
}

/// Says that all is set up, then waits until the experiment begins.
fn start_signal() -> Result<(), WorkerError> {
    line("ready")?;
    let mut text = String::new();
    io::stdin().read_line(&mut text)?;
    if text.is_empty() {
        // The experiment is gone.
        return Err(WorkerError::Socket(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

fn report(outcome: &impl Serialize) -> Result<(), WorkerError> {
    line(&serde_json::to_string(outcome).map_err(io::Error::from)?)
}

fn line(text: &str) -> Result<(), WorkerError> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")?;
    output.flush()?;
    Ok(())
}

/// A histogram of nanoseconds: three digits, grown as needed.
fn latency_histogram() -> Histogram<u64> {
    crate::measurement::latency_histogram()
}

fn finished(count: u64, elapsed: Duration, histogram: Option<&Histogram<u64>>) -> Outcome {
    let pairs = histogram.map(|histogram| {
        let values = histogram.iter_recorded();
        values
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    });
    Outcome {
        count,
        seconds: elapsed.as_secs_f64(),
        histogram: pairs.unwrap_or_default(),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
