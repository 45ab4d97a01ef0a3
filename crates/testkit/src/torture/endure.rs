//! Measures what a program sees during a fault between hosts, on lasting connections and on new ones. Bytes are
//! compared both ways.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Random, pattern};

use crate::Options;
use crate::errors::name;

/// The number of connections that last for the whole run.
const LASTING: u64 = 4;
/// The highest number of bytes of one question.
const LARGEST: usize = 32 << 10;
/// An answer that takes longer counts as disturbed by the fault.
const SLOW: Duration = Duration::from_millis(250);
/// The pause between two questions, and between two new connections.
const PAUSE: Duration = Duration::from_millis(5);

/// The observations of one kind of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observations {
    /// The longest time from a question, with the connect before it, to its answer.
    pub pause: Duration,
    /// The time of the last answer that took longer than [`SLOW`], since the start. Zero if there was none.
    pub slow_until: Duration,
    /// How many rounds succeeded.
    pub rounds: u64,
    /// Names of all errors.
    pub errors: BTreeSet<String>,
}

impl Observations {
    fn add(&mut self, outcome: Result<(), Error>, start: Instant, began: Instant) {
        let took = began.elapsed();
        match outcome {
            Ok(()) => self.rounds += 1,
            Err(error) => {
                self.errors.insert(name(&error));
            }
        }
        self.pause = self.pause.max(took);
        if took > SLOW {
            self.slow_until = start.elapsed();
        }
    }

    fn join(&mut self, other: Observations) {
        self.pause = self.pause.max(other.pause);
        self.slow_until = self.slow_until.max(other.slow_until);
        self.rounds += other.rounds;
        self.errors.extend(other.errors);
    }
}

impl fmt::Display for Observations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<&str> = self.errors.iter().map(String::as_str).collect();
        let (pause, slow) = (self.pause.as_millis(), self.slow_until.as_millis());
        let errors = errors.join(",");
        write!(formatter, "{pause} {slow} {} {errors}", self.rounds)
    }
}

impl FromStr for Observations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(4, ' ');
        let mut number = || {
            let word = words.next().unwrap_or_default();
            word.parse::<u64>().map_err(|_| text.to_owned())
        };
        let pause = Duration::from_millis(number()?);
        let slow_until = Duration::from_millis(number()?);
        let rounds = number()?;
        let errors = words.next().unwrap_or_default().split(',');
        Ok(Self {
            pause,
            slow_until,
            rounds,
            errors: errors
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// Asks for echoes until the time is over, and prints the observations: a line for lasting connections, and one for new
/// ones. A wrong byte ends the program at once with a panic.
pub fn run(options: &Options) {
    let (address, seed) = (options.address, options.seed);
    let streams: Vec<TcpStream> = (0..LASTING)
        .map(|_| TcpStream::connect(address).expect("connect"))
        .collect();
    println!("connected");
    let start = Instant::now();
    let end = start + Duration::from_millis(options.milliseconds);
    let lasting_ones = streams.into_iter().zip(0..).map(|(stream, index)| {
        thread::spawn(move || lasting_connection(stream, Random::new(seed ^ index), start, end))
    });
    let lasting_ones: Vec<_> = lasting_ones.collect();
    let new = new_connections(address, &mut Random::new(!seed), start, end);
    let mut observations = Observations::default();
    for thread in lasting_ones {
        observations.join(thread.join().expect("no byte is wrong"));
    }
    println!("standing {observations}");
    println!("new {new}");
}

/// One lasting connection, until its first error.
fn lasting_connection(
    mut stream: TcpStream,
    mut random: Random,
    start: Instant,
    end: Instant,
) -> Observations {
    let mut observations = Observations::default();
    while Instant::now() < end && observations.errors.is_empty() {
        let began = Instant::now();
        let outcome = ask(&mut stream, &mut random);
        observations.add(outcome, start, began);
        thread::sleep(PAUSE);
    }
    observations
}

/// New connections, one after the other.
fn new_connections(
    address: SocketAddr,
    random: &mut Random,
    start: Instant,
    end: Instant,
) -> Observations {
    let mut observations = Observations::default();
    while Instant::now() < end {
        let began = Instant::now();
        let outcome =
            TcpStream::connect(address).and_then(|mut stream| ask(&mut stream, &mut *random));
        observations.add(outcome, start, began);
        thread::sleep(PAUSE);
    }
    observations
}

fn ask(stream: &mut TcpStream, random: &mut Random) -> Result<(), Error> {
    let question = pattern(random.below(1 << 20), random.between(1, LARGEST));
    // The bytes in transit both ways fit the buffers of both ends, so that neither end waits for the other one to read.
    stream.write_all(&question)?;
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer)?;
    assert!(answer == question, "the echo is what was sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_is_read_as_it_is_written() {
        for errors in [vec![], vec!["ECONNRESET"], vec!["EPIPE", "ETIMEDOUT"]] {
            let observations = Observations {
                pause: Duration::from_millis(1234),
                slow_until: Duration::from_millis(5678),
                rounds: 17,
                errors: errors.into_iter().map(str::to_owned).collect(),
            };
            assert_eq!(observations.to_string().parse(), Ok(observations));
        }
    }
}
