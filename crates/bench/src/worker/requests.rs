//! Requests on connections of their own, many at a time: connect, 64 bytes there and back, close. As fast as they go, or each when it
//! is due, whatever became of those before; then its time counts from that moment.

use super::address::Address;
use super::payload::{MESSAGE, reply, request};
use super::system::{Epoll, connect_nonblocking, pending_error, receive, send, token};
use super::{Outcome, WorkerError, latency_histogram, nanoseconds, start_signal};
use crate::measurement::to_float;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long requests that are late may take after the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// At a time, at most.
    concurrency: usize,
    /// In each second of each part of the time; none: as fast as they go.
    rates: Vec<f64>,
}

impl FromStr for Load {
    type Err = WorkerError;

    /// `100`, `100:2000` or `100:2000,500,0`
    fn from_str(text: &str) -> Result<Self, WorkerError> {
        let (concurrency, rates) = text.split_once(':').unwrap_or((text, ""));
        let rates = rates.split(',').filter(|rate| !rate.is_empty());
        let rates = rates.map(|rate| rate.parse().map_err(|_| WorkerError::Usage));
        let count = concurrency.parse().ok().filter(|count| *count > 0);
        Ok(Load {
            concurrency: count.ok_or(WorkerError::Usage)?,
            rates: rates.collect::<Result<_, _>>()?,
        })
    }
}

impl Load {
    /// When each request is due, from the start on.
    fn due(&self, duration: Duration) -> impl Iterator<Item = Duration> {
        let part = duration.as_secs_f64() / to_float(self.rates.len() as u64);
        let parts = (0_u64..).zip(&self.rates);
        parts.flat_map(move |(index, rate)| {
            let begin = to_float(index) * part;
            let count = (0_u64..).take_while(move |number| to_float(*number) < rate * part);
            count.map(move |number| Duration::from_secs_f64(begin + to_float(number) / rate))
        })
    }
}

/// What became of requests; it can be read as an [`Outcome`], too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Those that were answered.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Nobody listened.
    pub refused: u64,
    /// The connection was reset.
    pub reset: u64,
    /// All else: ended without an answer, not answered in time, no port left.
    pub lost: u64,
}

impl Answers {
    /// An error where one was not answered.
    pub fn all(self) -> Result<Outcome, WorkerError> {
        let Answers {
            outcome,
            refused,
            reset,
            lost,
        } = self;
        if refused + reset + lost > 0 {
            return Err(WorkerError::Verification(format!(
                "{refused} requests refused, {reset} reset, {lost} lost"
            )));
        }
        Ok(outcome)
    }
}

/// A request on its way.
struct Request {
    socket: OwnedFd,
    since: Instant,
    message: [u8; MESSAGE],
    is_connected: bool,
    answer: [u8; MESSAGE],
    received: usize,
}

struct Client {
    address: SocketAddr,
    epoll: Epoll,
    /// By number of descriptor.
    requests: Vec<Option<Request>>,
    under_way: usize,
    sequence: u64,
    histogram: Histogram<u64>,
    answered: u64,
    refused: u64,
    reset: u64,
    lost: u64,
}

/// Asks for `duration`, and says what became of it.
pub fn drive(address: &Address, duration: Duration, load: &Load) -> Result<Answers, WorkerError> {
    let mut client = Client::new(address)?;
    // One before the start: whoever looks sees that there is a server.
    client.begin(Instant::now())?;
    client.finish(Instant::now() + PATIENCE)?;
    if client.answered != 1 {
        return Err(WorkerError::Verification(
            "the first request was not answered".to_owned(),
        ));
    }
    start_signal()?;
    client.forget();
    let begin = Instant::now();
    if load.rates.is_empty() {
        client.as_fast_as_they_go(begin + duration, load.concurrency)?;
    } else {
        client.when_due(begin, load.due(duration), load.concurrency)?;
    }
    client.finish(Instant::now() + PATIENCE)?;
    let seconds = begin.elapsed();
    let values = client.histogram.iter_recorded();
    let histogram = values.map(|value| (value.value_iterated_to(), value.count_at_value()));
    Ok(Answers {
        outcome: Outcome {
            count: client.answered,
            seconds: seconds.as_secs_f64(),
            histogram: histogram.collect(),
        },
        refused: client.refused,
        reset: client.reset,
        lost: client.lost,
    })
}

impl Client {
    fn new(address: &Address) -> Result<Self, WorkerError> {
        let Address::Tcp(address) = address else {
            return Err(WorkerError::Usage);
        };
        Ok(Client {
            address: *address,
            epoll: Epoll::new(256)?,
            requests: Vec::new(),
            under_way: 0,
            sequence: 0,
            histogram: latency_histogram(),
            answered: 0,
            refused: 0,
            reset: 0,
            lost: 0,
        })
    }

    fn forget(&mut self) {
        self.histogram.reset();
        self.answered = 0;
    }

    fn as_fast_as_they_go(&mut self, end: Instant, concurrency: usize) -> Result<(), WorkerError> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            while self.under_way < concurrency {
                self.begin(Instant::now())?;
            }
            self.wait(end - now)?;
        }
    }

    fn when_due(
        &mut self,
        begin: Instant,
        due: impl Iterator<Item = Duration>,
        concurrency: usize,
    ) -> Result<(), WorkerError> {
        for due in due {
            let due = begin + due;
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() && self.under_way < concurrency {
                    break;
                }
                self.wait(if left.is_zero() { PATIENCE } else { left })?;
            }
            self.begin(due)?;
        }
        Ok(())
    }

    /// Waits for those that are under way.
    fn finish(&mut self, end: Instant) -> Result<(), WorkerError> {
        while self.under_way > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = std::mem::take(&mut self.under_way);
                self.lost += late as u64;
                self.requests.clear();
                return Ok(());
            }
            self.wait(left)?;
        }
        Ok(())
    }

    fn begin(&mut self, since: Instant) -> Result<(), WorkerError> {
        self.sequence += 1;
        let socket = match connect_nonblocking(self.address) {
            Ok(socket) => socket,
            Err(error) => {
                self.count_error(&error);
                return Ok(());
            }
        };
        let token = token(socket.as_raw_fd());
        self.epoll.add_writable(socket.as_fd(), token)?;
        let index = usize::try_from(token).unwrap_or(usize::MAX);
        if self.requests.len() <= index {
            self.requests.resize_with(index + 1, || None);
        }
        self.requests[index] = Some(Request {
            socket,
            since,
            message: request(0, self.sequence),
            is_connected: false,
            answer: [0; MESSAGE],
            received: 0,
        });
        self.under_way += 1;
        Ok(())
    }

    /// Waits for news at most so long, and follows them.
    fn wait(&mut self, limit: Duration) -> Result<(), WorkerError> {
        let mut ready = Vec::new();
        self.epoll.wait_at_most(&mut ready, limit)?;
        for token in ready {
            let index = usize::try_from(token).unwrap_or(usize::MAX);
            let Some(Some(request)) = self.requests.get_mut(index) else {
                continue;
            };
            let done = match request.step(&self.epoll) {
                Ok(false) => continue,
                done => done,
            };
            let took = request.since.elapsed();
            let is_right = request.answer == reply(&request.message);
            self.requests[index] = None;
            self.under_way -= 1;
            match done {
                Err(error) => self.count_error(&error),
                Ok(_) if is_right => {
                    self.answered += 1;
                    self.histogram.saturating_record(nanoseconds(took));
                }
                Ok(_) => {
                    return Err(WorkerError::Verification(
                        "wrong byte in a reply".to_owned(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn count_error(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => self.refused += 1,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => self.reset += 1,
            _ => self.lost += 1,
        }
    }
}

impl Request {
    /// Goes on as far as it goes. True: the answer is there.
    fn step(&mut self, epoll: &Epoll) -> io::Result<bool> {
        if !self.is_connected {
            pending_error(self.socket.as_fd())?;
            // An empty buffer takes 64 bytes.
            match send(self.socket.as_fd(), &self.message)? {
                Some(MESSAGE) => {}
                _ => return Err(io::ErrorKind::WriteZero.into()),
            }
            self.is_connected = true;
            epoll.make_readable(self.socket.as_fd(), token(self.socket.as_raw_fd()))?;
            return Ok(false);
        }
        match receive(self.socket.as_fd(), &mut self.answer[self.received..])? {
            None => Ok(false),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => {
                self.received += count;
                Ok(self.received == MESSAGE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_parts() {
        let load: Load = "7:2,0,4".parse().unwrap();
        let due: Vec<u128> = load
            .due(Duration::from_secs(3))
            .map(|due| due.as_millis())
            .collect();
        assert_eq!(due, [0, 500, 2000, 2250, 2500, 2750]);
        assert!("100".parse::<Load>().unwrap().rates.is_empty());
        assert!("".parse::<Load>().is_err() && "0".parse::<Load>().is_err());
        assert!("7:x".parse::<Load>().is_err());
    }
}
