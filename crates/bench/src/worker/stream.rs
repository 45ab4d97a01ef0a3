//! One stream: a writer that writes in calls of one size, and a reader in calls of 128 KiB.
//!
//! The first [`VERIFIED_WHOLE`] bytes are sent before the start and compared byte by byte; they
//! also give the transport time to find its buffer sizes.

use super::address::{Address, Connection, Listener};
use super::payload::{CALL, StreamCheck, StreamSource, VERIFIED_WHOLE};
use super::{Outcome, WorkerError, announce, finished, report, start_signal};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Reads one connection to its end; says how many bytes came after the start and how long from
/// the first of them to the end.
pub fn serve(address: &Address) -> Result<(), WorkerError> {
    let (listener, bound) = Listener::bind(address)?;
    announce(&bound)?;
    let mut connection = listener.accept()?;
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
    report(&finished(
        check.position() - VERIFIED_WHOLE,
        begin.elapsed(),
        None,
    ))
}

/// Writes for `duration`, `size` bytes with each call; a divisor of [`CALL`].
pub fn drive(address: &Address, duration: Duration, size: usize) -> Result<Outcome, WorkerError> {
    let mut connection = Connection::connect(address)?;
    let mut source = StreamSource::new();
    for _ in 0..VERIFIED_WHOLE / CALL as u64 {
        write(&mut connection, source.next_call(), size)?;
    }
    start_signal()?;
    let begin = Instant::now();
    let mut written = 0;
    while begin.elapsed() < duration {
        write(&mut connection, source.next_call(), size)?;
        written += CALL as u64;
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
