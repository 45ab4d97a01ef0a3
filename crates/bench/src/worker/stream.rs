//! Streams: a writer that writes in calls of one size, and a reader in calls of 128 KiB; each connection has a thread at either
//! end.
//!
//! The first [`VERIFIED_WHOLE`] bytes are sent before the start and compared byte by byte; they
//! also give the transport time to find its buffer sizes.

use super::address::{Address, Connection, Listener};
use super::payload::{CALL, StreamCheck, StreamSource, VERIFIED_WHOLE};
use super::{Outcome, WorkerError, announce, finished, report, start_signal};
use crate::measurement::to_float;
use std::io::{self, Read, Write};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Reads so many connections to their end; says how many bytes came after the start, and how long they took at the rate of all
/// together.
pub fn serve(address: &Address, connections: usize) -> Result<(), WorkerError> {
    let (listener, bound) = Listener::bind(address)?;
    announce(&bound)?;
    let outcomes = thread::scope(|scope| {
        let readers = (0..connections).map(|_| {
            let connection = listener.accept()?;
            Ok(scope.spawn(move || read(connection)))
        });
        joined(readers.collect::<Result<_, WorkerError>>()?)
    })?;
    report(&together(&outcomes))
}

fn joined(
    threads: Vec<ScopedJoinHandle<'_, Result<Outcome, WorkerError>>>,
) -> Result<Vec<Outcome>, WorkerError> {
    let results = threads.into_iter().map(|thread| {
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked").into()))
    });
    results.collect()
}

/// The rates are added, since nobody waits for the slowest.
fn together(outcomes: &[Outcome]) -> Outcome {
    let rate: f64 = outcomes
        .iter()
        .map(|one| to_float(one.count) / one.seconds)
        .sum();
    let count = outcomes.iter().map(|one| one.count).sum();
    Outcome {
        count,
        seconds: to_float(count) / rate,
        histogram: Vec::new(),
    }
}

/// Reads one connection to its end, the time from the first byte after the start.
fn read(mut connection: Connection) -> Result<Outcome, WorkerError> {
    let mut buffer = vec![0; CALL];
    let mut check = StreamCheck::new();
    let mut begin = None;
    loop {
        let count = connection.read(&mut buffer)?;
        if check.position() >= VERIFIED_WHOLE {
            begin.get_or_insert_with(Instant::now);
        }
        if count == 0 {
            break;
        }
        check
            .accept(&buffer[..count])
            .map_err(|error| WorkerError::Verification(error.to_string()))?;
    }
    let Some(begin) = begin else {
        let position = check.position();
        return Err(WorkerError::Verification(format!(
            "the stream ended after {position} bytes"
        )));
    };
    Ok(finished(
        check.position() - VERIFIED_WHOLE,
        begin.elapsed(),
        None,
    ))
}

/// Writes to all for `duration`, `size` bytes with each call, a divisor of [`CALL`]; at a `rate` in bytes per second each, or as fast as
/// it goes.
pub fn drive(
    addresses: &[Address],
    duration: Duration,
    size: usize,
    rate: Option<f64>,
) -> Result<Outcome, WorkerError> {
    let begun = addresses.iter().map(|address| begin(address, size));
    let mut begun = begun.collect::<Result<Vec<_>, _>>()?;
    start_signal()?;
    if let [(connection, source)] = begun.as_mut_slice() {
        return write_for(connection, source, duration, (size, rate));
    }
    let outcomes = thread::scope(|scope| {
        let writers = begun.iter_mut().map(|(connection, source)| {
            scope.spawn(move || write_for(connection, source, duration, (size, rate)))
        });
        joined(writers.collect())
    })?;
    Ok(together(&outcomes))
}

fn begin(address: &Address, size: usize) -> Result<(Connection, StreamSource), WorkerError> {
    let mut connection = Connection::connect(address)?;
    let mut source = StreamSource::new();
    for _ in 0..VERIFIED_WHOLE / CALL as u64 {
        write(&mut connection, source.next_call(), size)?;
    }
    Ok((connection, source))
}

fn write_for(
    connection: &mut Connection,
    source: &mut StreamSource,
    duration: Duration,
    (size, rate): (usize, Option<f64>),
) -> Result<Outcome, WorkerError> {
    let begin = Instant::now();
    let mut written = 0;
    while begin.elapsed() < duration {
        write(connection, source.next_call(), size)?;
        written += CALL as u64;
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(to_float(written) / rate);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    connection.finish()?;
    // The reader's close: all bytes are read by then.
    let left = connection.read(&mut [0; 1])?;
    if left != 0 {
        return Err(WorkerError::Verification(
            "the reader sent a byte".to_owned(),
        ));
    }
    Ok(finished(written, begin.elapsed(), None))
}

fn write(connection: &mut Connection, bytes: &[u8], size: usize) -> Result<(), WorkerError> {
    for message in bytes.chunks(size) {
        connection.write_all(message)?;
    }
    Ok(())
}
