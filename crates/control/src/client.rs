//! The client: one connection, one request, one answer.

use crate::path;
use crate::plain::plain;
use crate::types::{Request, Response};
use netchannel_trust::{Distrust, peer, place};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Longest path of a socket, without the zero at its end.
const LONGEST_PATH: usize = 107;

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No daemon serves at the path.
    #[error(
        "no daemon serves at {0}; start one with `netchannel daemon` or a program with `netchannel run -- PROGRAM`"
    )]
    NoDaemon(PathBuf),
    /// The daemon of another user, or a path at which there could be one.
    #[error(
        "the daemon at {0} is not used: {1}; name one of your own or of root's with --socket PATH"
    )]
    Distrusted(PathBuf, Distrust),
    /// The place cannot be reached.
    #[error(
        "not allowed to reach the daemon at {0}; ask as the user who started it, or name another with --socket PATH"
    )]
    Denied(PathBuf),
    /// No socket can have such a path.
    #[error(
        "the path {0} is too long for a socket: name one of at most 99 bytes with --socket PATH"
    )]
    TooLong(PathBuf),
    /// The daemon did not answer in time.
    #[error("the daemon at {0} timed out after {1:?}; it may be stopped or overloaded")]
    Late(PathBuf, Duration),
    /// The connection failed.
    #[error("the daemon at {0} did not answer ({error})", error = plain(&.1.to_string()))]
    Failed(PathBuf, std::io::Error),
    /// The answer made no sense.
    #[error("the daemon at {0} answered something else ({1}); it may be of another version")]
    Unintelligible(PathBuf, String),
    /// The daemon refused.
    #[error("the daemon at {0} refused: {1}")]
    Refused(PathBuf, String),
}

impl ClientError {
    /// Whether there was no daemon, or it ended while it was asked: another one may be started.
    #[must_use]
    pub fn is_without_daemon(&self) -> bool {
        match self {
            Self::NoDaemon(_) => true,
            Self::Failed(_, error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
            ),
            _ => false,
        }
    }
}

/// Asks the daemon whose attach socket is `attach`.
///
/// # Errors
/// Where there is no daemon, it does not answer within `patience`, or it refuses.
pub fn request(
    attach: &Path,
    request: Request,
    patience: Duration,
) -> Result<Response, ClientError> {
    let named = || attach.to_owned();
    let stream = connect(attach)?;
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Late(named(), patience),
        _ => ClientError::Failed(named(), error),
    };
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    let mut line = serde_json::to_vec(&request)
        .map_err(|error| ClientError::Unintelligible(named(), error.to_string()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(failed)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(LONGEST_ANSWER))
        .read_until(b'\n', &mut answer)
        .map_err(failed)?;
    if answer.is_empty() {
        return Err(failed(ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_slice(&answer) {
        Ok(Response::Error(reason)) => Err(ClientError::Refused(named(), reason)),
        Ok(response) => Ok(response),
        Err(error) => Err(ClientError::Unintelligible(named(), error.to_string())),
    }
}

/// Connects to a socket that only this user and root can have created, and to no other.
fn connect(attach: &Path) -> Result<UnixStream, ClientError> {
    let socket = path::control_socket(attach);
    if socket.as_os_str().len() > LONGEST_PATH {
        return Err(ClientError::TooLong(attach.to_owned()));
    }
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ClientError::NoDaemon(attach.to_owned())
        }
        ErrorKind::PermissionDenied => ClientError::Denied(attach.to_owned()),
        _ => ClientError::Failed(attach.to_owned(), error),
    };
    let distrusted = |why| match why {
        Distrust::Unreachable(_, errno) => failed(std::io::Error::from_raw_os_error(errno)),
        why => ClientError::Distrusted(attach.to_owned(), why),
    };
    let place = place::socket(&socket).map_err(distrusted)?;
    let stream = UnixStream::connect(socket).map_err(failed)?;
    peer::judge(stream.as_raw_fd(), place).map_err(distrusted)?;
    Ok(stream)
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
        let long = place.path().join("s".repeat(100));
        let error = request(&long, Request::Hello, Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("at most 99 bytes"), "{error}");
    }
}
