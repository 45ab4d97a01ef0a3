//! Round trips: a message there and one of its size back, blocking, one at a time.

use super::address::{Address, Connection, Listener};
use super::payload::{is_request, reply, request};
use super::{
    Outcome, WorkerError, announce, finished, latency_histogram, nanoseconds, start_signal,
};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Round trips before the start, so that first-use costs are not in the tail.
const WARM_UP: u64 = 200;

/// Answers one connection until its end.
pub fn serve<const SIZE: usize>(address: &Address) -> Result<(), WorkerError> {
    let (listener, bound) = Listener::bind(address)?;
    announce(&bound)?;
    let mut connection = listener.accept()?;
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
pub fn drive<const SIZE: usize>(
    address: &Address,
    duration: Duration,
) -> Result<Outcome, WorkerError> {
    let mut connection = Connection::connect(address)?;
    connection.set_nodelay()?;
    for sequence in 0..WARM_UP {
        round_trip::<SIZE>(&mut connection, sequence)?;
    }
    start_signal()?;

    let mut histogram = latency_histogram();
    let mut sequence = WARM_UP;
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
        sequence - WARM_UP,
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
