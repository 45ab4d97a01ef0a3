//! What a program meets while something is wrong between hosts: connections that stand, and new ones. Bytes are compared both ways.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Random, pattern};

use crate::Options;
use crate::witness::name;

/// Connections that stand from the beginning to the end.
const STANDING: u64 = 4;
/// Bytes of one question at most.
const LARGEST: usize = 32 << 10;
/// Between two questions, and between two new connections.
const PAUSE: Duration = Duration::from_millis(5);

/// What was met, of one kind of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// The longest time that one answer took, with the connect before it.
    pub pause: Duration,
    /// How often all went well.
    pub rounds: u64,
    /// Names of all errors.
    pub errors: BTreeSet<String>,
}

impl Met {
    fn add(&mut self, outcome: Result<(), Error>, took: Duration) {
        match outcome {
            Ok(()) => self.rounds += 1,
            Err(error) => {
                self.errors.insert(name(&error));
            }
        }
        self.pause = self.pause.max(took);
    }

    fn join(&mut self, other: Met) {
        self.pause = self.pause.max(other.pause);
        self.rounds += other.rounds;
        self.errors.extend(other.errors);
    }
}

impl fmt::Display for Met {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<&str> = self.errors.iter().map(String::as_str).collect();
        let pause = self.pause.as_millis();
        write!(formatter, "{pause} {} {}", self.rounds, errors.join(","))
    }
}

impl FromStr for Met {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(3, ' ');
        let mut number = || {
            let word = words.next().unwrap_or_default();
            word.parse::<u64>().map_err(|_| text.to_owned())
        };
        let pause = Duration::from_millis(number()?);
        let rounds = number()?;
        let errors = words.next().unwrap_or_default().split(',');
        Ok(Self {
            pause,
            rounds,
            errors: errors
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// Asks for echoes until the time is over, and says what it met: a line for connections that stand, and one for new ones. Ends at
/// once with a panic where a byte is wrong.
pub fn run(options: &Options) {
    let (address, seed) = (options.address, options.seed);
    let end = Instant::now() + Duration::from_millis(options.milliseconds);
    let streams: Vec<TcpStream> = (0..STANDING)
        .map(|_| TcpStream::connect(address).expect("connect"))
        .collect();
    println!("connected");
    let standing = streams.into_iter().zip(0..).map(|(stream, index)| {
        thread::spawn(move || stand(stream, Random::new(seed ^ index), end))
    });
    let standing: Vec<_> = standing.collect();
    let new = come_and_go(address, &mut Random::new(!seed), end);
    let mut met = Met::default();
    for thread in standing {
        met.join(thread.join().expect("no byte is wrong"));
    }
    println!("standing {met}");
    println!("new {new}");
}

/// One connection, until its first error.
fn stand(mut stream: TcpStream, mut random: Random, end: Instant) -> Met {
    let mut met = Met::default();
    while Instant::now() < end && met.errors.is_empty() {
        let began = Instant::now();
        let outcome = ask(&mut stream, &mut random);
        met.add(outcome, began.elapsed());
        thread::sleep(PAUSE);
    }
    met
}

/// New connections, one after the other.
fn come_and_go(address: SocketAddr, random: &mut Random, end: Instant) -> Met {
    let mut met = Met::default();
    while Instant::now() < end {
        let began = Instant::now();
        let outcome =
            TcpStream::connect(address).and_then(|mut stream| ask(&mut stream, &mut *random));
        met.add(outcome, began.elapsed());
        thread::sleep(PAUSE);
    }
    met
}

fn ask(stream: &mut TcpStream, random: &mut Random) -> Result<(), Error> {
    let question = pattern(random.below(1 << 20), random.between(1, LARGEST));
    // What is on its way both ways fits the buffers of both ends: nobody waits for the other one to read.
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
            let met = Met {
                pause: Duration::from_millis(1234),
                rounds: 17,
                errors: errors.into_iter().map(str::to_owned).collect(),
            };
            assert_eq!(met.to_string().parse(), Ok(met));
        }
    }
}
