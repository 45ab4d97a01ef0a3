//! The part of HTTP that fetching metrics needs: one request and one answer on a connection.

use crate::outgoing::{Outgoing, Sent};
use crate::sessions::{Session, Sessions};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The limit of connections.
const MOST_FETCHES: usize = 16;
/// How long a client may take to send its request, and to read its answer without any progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of a request.
const LONGEST_HEAD: usize = 8192;

/// One connection.
#[derive(Debug)]
pub struct Fetch {
    /// The connection.
    pub socket: OwnedFd,
    head: Vec<u8>,
    answer: Outgoing,
    /// Set while the metrics for its answer are being counted: whether it wants the body, too.
    waits: Option<bool>,
    deadline: Instant,
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more of the request.
    Await,
    /// Answer with metrics; true with the body, false for a HEAD request.
    Metrics(bool),
    /// Wait for room for the rest of the answer.
    AwaitRoom,
    /// Close it.
    Close,
}

/// All connections.
pub type Fetches = Sessions<Fetch>;

impl Session for Fetch {
    const MOST: usize = MOST_FETCHES;
    const MOST_OF_USER: usize = MOST_FETCHES;

    /// The user of a TCP connection is unknown.
    fn user(&self) -> u32 {
        0
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_being_answered(&self) -> bool {
        self.waits.is_some()
    }
}

impl Fetches {
    /// Adds a connection.
    pub fn open(&mut self, socket: OwnedFd, now: Instant) -> u32 {
        self.add(Fetch {
            socket,
            head: Vec::new(),
            answer: Outgoing::default(),
            waits: None,
            deadline: now + PATIENCE,
        })
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpRequest {
    Metrics { head_only: bool },
    OtherPath,
    OtherMethod,
    Malformed,
}

/// Parses the first line of a request.
fn parse_request(line: &[u8]) -> HttpRequest {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version)) = (method, target, version) else {
        return HttpRequest::Malformed;
    };
    if !version.starts_with(b"HTTP/1.") || words.next().is_some() {
        return HttpRequest::Malformed;
    }
    let path = target.split(|byte| *byte == b'?').next();
    match (method, path) {
        (b"GET", Some(b"/metrics")) => HttpRequest::Metrics { head_only: false },
        (b"HEAD", Some(b"/metrics")) => HttpRequest::Metrics { head_only: true },
        (b"GET" | b"HEAD", _) => HttpRequest::OtherPath,
        _ => HttpRequest::OtherMethod,
    }
}

impl Fetch {
    /// Reads the request.
    pub fn on_readable(&mut self) -> Step {
        if self.waits.is_some() {
            return Step::AwaitRoom;
        }
        let mut buffer = [0; 2048];
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Step::Close,
                Ok((_, length)) => {
                    let came = buffer.get(..length).unwrap_or_default();
                    self.head.extend_from_slice(came);
                }
                Err(Errno::AGAIN) => return Step::Await,
                Err(Errno::INTR) => continue,
                Err(_) => return Step::Close,
            }
            let ends = |end: &[u8]| self.head.windows(end.len()).any(|part| part == end);
            if ends(b"\r\n\r\n") || ends(b"\n\n") {
                return self.on_request();
            }
            if self.head.len() > LONGEST_HEAD {
                return self.answer("431 Request Header Fields Too Large", "too long\n", false);
            }
        }
    }

    fn on_request(&mut self) -> Step {
        let mut lines = self.head.split(|byte| matches!(byte, b'\r' | b'\n'));
        match parse_request(lines.next().unwrap_or_default()) {
            HttpRequest::Metrics { head_only } => Step::Metrics(!head_only),
            HttpRequest::OtherPath => {
                self.answer("404 Not Found", "metrics are at /metrics\n", false)
            }
            HttpRequest::OtherMethod => self.answer("405 Method Not Allowed", "GET them\n", false),
            HttpRequest::Malformed => self.answer("400 Bad Request", "this is not HTTP\n", false),
        }
    }

    /// Waits for the count of the metrics.
    pub const fn wait(&mut self, with_body: bool) {
        self.waits = Some(with_body);
    }

    /// The metrics were counted. Returns whether the client wants the body, where it waits for them.
    pub fn take_waiting(&mut self, now: Instant) -> Option<bool> {
        // The delay was the daemon's.
        self.deadline = now + PATIENCE;
        self.waits.take()
    }

    /// Starts to send an answer: metrics, or a sentence.
    pub fn answer(&mut self, status: &str, body: &str, with_body: bool) -> Step {
        let with_body = with_body || !status.starts_with("200");
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(body.as_bytes());
        }
        self.answer.set(bytes);
        self.on_writable(None)
    }

    /// Sends what fits.
    pub fn on_writable(&mut self, now: Option<Instant>) -> Step {
        let (sent, moved) = self.answer.send(&self.socket);
        if let (Some(now), true) = (now, moved) {
            self.deadline = now + PATIENCE;
        }
        match sent {
            Sent::All if self.waits.is_some() => Step::Await,
            Sent::All => {
                // A client that still sends sees the end this way. A reset would discard the answer.
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
                Step::Close
            }
            Sent::Part => Step::AwaitRoom,
            Sent::Lost => Step::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_metrics_are_there() {
        let metrics = |head_only| HttpRequest::Metrics { head_only };
        assert_eq!(parse_request(b"GET /metrics HTTP/1.1"), metrics(false));
        assert_eq!(parse_request(b"HEAD /metrics?a=b HTTP/1.0"), metrics(true));
        assert_eq!(parse_request(b"GET / HTTP/1.1"), HttpRequest::OtherPath);
        assert_eq!(
            parse_request(b"POST /metrics HTTP/1.1"),
            HttpRequest::OtherMethod
        );
        for line in [
            &b"GET"[..],
            b"GET /metrics",
            b"GET /metrics HTTP/2",
            b"\x16\x03\x01",
            b"",
        ] {
            assert_eq!(parse_request(line), HttpRequest::Malformed, "{line:?}");
        }
    }

    fn fetch() -> (Fetches, u32, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut fetches = Fetches::default();
        let number = fetches.open(ours.into(), Instant::now());
        (fetches, number, theirs)
    }

    #[test]
    fn a_request_in_pieces_is_answered_once_it_is_whole() {
        let (mut fetches, number, mut theirs) = fetch();
        let fetch = fetches.get(number).unwrap();
        for piece in ["GET /metr", "ics HTTP/1.1\r\nHost: x\r\n"] {
            theirs.write_all(piece.as_bytes()).unwrap();
            assert_eq!(fetch.on_readable(), Step::Await);
        }
        theirs.write_all(b"\r\n").unwrap();
        assert_eq!(fetch.on_readable(), Step::Metrics(true));
        assert_eq!(fetch.answer("200 OK", "x 1\n", true), Step::Close);
        fetches.close(number);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(
            text.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\nx 1\n"),
            "{text}"
        );
    }

    #[test]
    fn a_flood_is_cut_off() {
        let (mut fetches, number, mut theirs) = fetch();
        theirs.write_all(&[b'x'; 10_000]).unwrap();
        let fetch = fetches.get(number).unwrap();
        assert_eq!(fetch.on_readable(), Step::Close);
        let mut text = [0; 12];
        theirs.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"HTTP/1.1 431");
    }

    #[test]
    fn who_says_nothing_is_let_go() {
        let (mut fetches, number, _theirs) = fetch();
        let now = Instant::now();
        assert!(fetches.expire(now).is_some());
        assert!(fetches.expire(now + PATIENCE * 2).is_none());
        assert!(fetches.get(number).is_none());
        let pairs: Vec<_> = (0..MOST_FETCHES + 4)
            .map(|_| UnixStream::pair().unwrap())
            .collect();
        let mut theirs = Vec::new();
        for (ours, other) in pairs {
            fetches.open(ours.into(), now);
            theirs.push(other);
        }
        assert_eq!(fetches.count(), MOST_FETCHES);
    }
}
