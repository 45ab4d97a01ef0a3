//! The client: one connection, one request, one answer.

use crate::path;
use crate::types::{Request, Response};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody serves there.
    #[error(
        "no daemon serves at {0}; start one with `netchannel daemon` or a program with `netchannel run -- PROGRAM`"
    )]
    NoDaemon(PathBuf),
    /// Somebody else's daemon.
    #[error("not allowed to ask the daemon at {0}; it belongs to another user")]
    Denied(PathBuf),
    /// The connection failed.
    #[error("the daemon at {0} did not answer ({1})")]
    Failed(PathBuf, std::io::Error),
    /// The answer made no sense.
    #[error("the daemon at {0} answered something else ({1}); it may be of another version")]
    Unintelligible(PathBuf, String),
    /// It refused.
    #[error("the daemon at {0} refused: {1}")]
    Refused(PathBuf, String),
}

/// Asks the daemon whose attach socket is `attach`.
///
/// # Errors
/// When there is none, it does not answer within `patience`, or it refuses.
pub fn request(
    attach: &Path,
    request: Request,
    patience: Duration,
) -> Result<Response, ClientError> {
    let place = || attach.to_owned();
    let stream =
        UnixStream::connect(path::control_socket(attach)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoDaemon(place()),
            ErrorKind::PermissionDenied => ClientError::Denied(place()),
            _ => ClientError::Failed(place(), error),
        })?;
    let failed = |error| ClientError::Failed(place(), error);
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    let mut line = serde_json::to_vec(&request)
        .map_err(|error| ClientError::Unintelligible(place(), error.to_string()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(failed)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(LONGEST_ANSWER))
        .read_until(b'\n', &mut answer)
        .map_err(failed)?;
    match serde_json::from_slice(&answer) {
        Ok(Response::Error(reason)) => Err(ClientError::Refused(place(), reason)),
        Ok(response) => Ok(response),
        Err(error) => Err(ClientError::Unintelligible(place(), error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_there_is_said_so() {
        let place = tempfile::tempdir().unwrap();
        let attach = place.path().join("none.sock");
        let error = request(&attach, Request::Hello, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, ClientError::NoDaemon(_)), "{error}");
    }
}
