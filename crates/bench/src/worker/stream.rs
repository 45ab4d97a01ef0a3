//! One stream: a writer and a reader, 128 KiB calls.

use super::address::{Address, Connection, Listener};
use super::payload::{CALL, StreamCheck, StreamSource};
use super::{Outcome, WorkerError, announce, finished, report, start_signal};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Reads one connection to its end; says how many bytes and how long from the first to the last.
pub fn serve(address: &Address) -> Result<(), WorkerError> {
    let (listener, bound) = Listener::bind(address)?;
    announce(&bound)?;
    let mut connection = listener.accept()?;
    let mut buffer = vec![0; CALL];
    let mut check = StreamCheck::default();
    let mut begin = None;
    loop {
        let count = connection.read(&mut buffer)?;
        let begin = *begin.get_or_insert_with(Instant::now);
        if count == 0 {
            return report(&finished(check.position(), begin.elapsed(), None));
        }
        check
            .accept(&buffer[..count])
            .map_err(|error| WorkerError::Verification(error.to_string()))?;
    }
}

/// Writes for `duration`.
pub fn drive(address: &Address, duration: Duration) -> Result<Outcome, WorkerError> {
    let mut connection = Connection::connect(address)?;
    let mut source = StreamSource::new();
    start_signal()?;
    let begin = Instant::now();
    let mut written = 0;
    while begin.elapsed() < duration {
        connection.write_all(source.next_call())?;
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
