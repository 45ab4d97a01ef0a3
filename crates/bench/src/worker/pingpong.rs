//! Round trips: a message there and one of its size back, blocking, one at a time.

use super::address::{Address, Connection, Listener};
use super::payload::{MESSAGE, is_request, reply, request};
use super::{
    Outcome, WorkerError, announce, finished, latency_histogram, nanoseconds, start_signal,
};
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips before the start, so that first-use costs are not in the tail.
const WARM_UP: u64 = 200;
/// No more are made after this time, where each takes long.
const WARM_UP_TIME: Duration = Duration::from_millis(500);

/// Calls a function of the size that a message has.
macro_rules! of_size {
    ($size:expr, $function:ident($($argument:expr),*)) => {
        match $size.unwrap_or(MESSAGE) {
            MESSAGE => $function::<MESSAGE>($($argument),*),
            4096 => $function::<4096>($($argument),*),
            16_384 => $function::<16_384>($($argument),*),
            32_768 => $function::<32_768>($($argument),*),
            65_536 => $function::<65_536>($($argument),*),
            _ => Err(WorkerError::Usage),
        }
    };
}

/// Answers so many connections, each on a thread of its own, until their end.
pub fn serve(
    address: &Address,
    size: Option<usize>,
    connections: usize,
) -> Result<(), WorkerError> {
    let (listener, bound) = Listener::bind(address)?;
    announce(&bound)?;
    if connections == 1 {
        let connection = listener.accept()?;
        return of_size!(size, answer(connection));
    }
    thread::scope(|scope| {
        let answering: Vec<_> = (0..connections)
            .map(|_| {
                let connection = listener.accept()?;
                Ok(scope.spawn(move || of_size!(size, answer(connection))))
            })
            .collect::<Result<_, WorkerError>>()?;
        answering.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked").into()))
        })
    })
}

fn answer<const SIZE: usize>(mut connection: Connection) -> Result<(), WorkerError> {
    connection.set_nodelay()?;
    let mut message = [0; SIZE];
    loop {
        let mut received = 0;
        while received < SIZE {
            match connection.read(&mut message[received..])? {
                0 if received == 0 => return Ok(()),
                0 => return Err(WorkerError::Verification("a message was cut".to_owned())),
                count => received += count,
            }
        }
        if !is_request(&message) {
            return Err(WorkerError::Verification(
                "wrong byte in a request".to_owned(),
            ));
        }
        connection.write_all(&reply(&message))?;
    }
}

/// Asks for `duration` and records each round trip's time.
pub fn drive(
    address: &Address,
    size: Option<usize>,
    duration: Duration,
) -> Result<Outcome, WorkerError> {
    of_size!(size, ask(address, duration))
}

fn ask<const SIZE: usize>(address: &Address, duration: Duration) -> Result<Outcome, WorkerError> {
    let mut connection = Connection::connect(address)?;
    connection.set_nodelay()?;
    let warming = Instant::now();
    let mut sequence = 0;
    while sequence < WARM_UP && warming.elapsed() < WARM_UP_TIME {
        round_trip::<SIZE>(&mut connection, sequence)?;
        sequence += 1;
    }
    start_signal()?;

    let mut histogram = latency_histogram();
    let first = sequence;
    let begin = Instant::now();
    let mut now = begin;
    while now.duration_since(begin) < duration {
        round_trip::<SIZE>(&mut connection, sequence)?;
        sequence += 1;
        let after = Instant::now();
        histogram.saturating_record(nanoseconds(after.duration_since(now)));
        now = after;
    }
    Ok(finished(
        sequence - first,
        begin.elapsed(),
        Some(&histogram),
    ))
}

fn round_trip<const SIZE: usize>(
    connection: &mut Connection,
    sequence: u64,
) -> Result<(), WorkerError> {
    let message = request::<SIZE>(0, sequence);
    let mut answer = [0; SIZE];
    connection.write_all(&message)?;
    connection.read_exact(&mut answer)?;
    if answer != reply(&message) {
        return Err(WorkerError::Verification(
            "wrong byte in a reply".to_owned(),
        ));
    }
    Ok(())
}
