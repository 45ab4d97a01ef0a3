//! The control socket. A connection carries one JSON line in and one JSON line out. A long answer is written as it is
//! found, and no faster than it is read.

use crate::answering::Answering;
use crate::outgoing::{Outgoing, Sent};
use crate::sessions::{Session, Sessions};
use netchannel_control::types::{LONGEST_REQUEST, Request, Response};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The limit of commands served at once.
const MOST_COMMANDS: usize = 256;
/// The limit of one user.
const MOST_OF_USER: usize = 64;
/// How long a command may take to send its request, and to read its answer without any progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection of a command.
#[derive(Debug)]
pub struct Command {
    /// The connection.
    pub socket: OwnedFd,
    /// The user of the command.
    pub user: u32,
    request: Vec<u8>,
    answer: Outgoing,
    /// The rest of the answer, while it is being found.
    more: Option<Box<Answering>>,
    /// The command is in the daemon's list of answers to continue.
    pub is_listed: bool,
    deadline: Instant,
}

/// The next step of a connection.
#[derive(Debug)]
pub enum Step {
    /// Wait for more of the request.
    AwaitRequest,
    /// Answer this request.
    Answer(Request),
    /// Wait for room for the rest of the answer.
    AwaitRoom,
    /// Continue the answer.
    GoOn,
    /// Close it.
    Close,
}

/// All connections of commands.
pub type Commands = Sessions<Command>;

impl Session for Command {
    const MOST: usize = MOST_COMMANDS;
    const MOST_OF_USER: usize = MOST_OF_USER;

    fn user(&self) -> u32 {
        self.user
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_being_answered(&self) -> bool {
        self.is_listed
    }
}

impl Commands {
    /// Adds a connection.
    pub fn open(&mut self, socket: OwnedFd, user: u32, now: Instant) -> u32 {
        self.add(Command {
            socket,
            user,
            request: Vec::new(),
            answer: Outgoing::default(),
            more: None,
            is_listed: false,
            deadline: now + PATIENCE,
        })
    }
}

impl Command {
    /// Reads the request.
    pub fn on_readable(&mut self) -> Step {
        // Bytes after a request are ignored.
        if self.has_asked() {
            return Step::AwaitRoom;
        }
        let mut buffer = [0; 1024];
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Step::Close,
                Ok((_, length)) => {
                    let came = buffer.get(..length).unwrap_or_default();
                    self.request.extend_from_slice(came);
                }
                Err(Errno::AGAIN) => return Step::AwaitRequest,
                Err(Errno::INTR) => continue,
                Err(_) => return Step::Close,
            }
            if let Some(end) = self.request.iter().position(|byte| *byte == b'\n') {
                let line = self.request.get(..end).unwrap_or_default();
                return match serde_json::from_slice(line) {
                    Ok(request) => Step::Answer(request),
                    Err(error) => self.answer(&Response::Error(format!("no request: {error}"))),
                };
            }
            if self.request.len() > LONGEST_REQUEST {
                return self.answer(&Response::Error("the request is too long".to_owned()));
            }
        }
    }

    /// Starts to send an answer.
    pub fn answer(&mut self, response: &Response) -> Step {
        match serde_json::to_vec(response) {
            Ok(mut line) => {
                line.push(b'\n');
                self.answer.set(line);
                self.on_writable(None)
            }
            Err(_) => Step::Close,
        }
    }

    fn has_asked(&self) -> bool {
        self.more.is_some() || !self.answer.is_unused()
    }

    /// Starts an answer that is found in several turns; `begun` is its beginning.
    pub fn begin(&mut self, more: Box<Answering>, begun: Vec<u8>) {
        self.answer.set(begun);
        self.more = Some(more);
    }

    /// Takes the rest of the answer, and the bytes that were not sent yet.
    pub fn take_more(&mut self) -> Option<(Box<Answering>, Vec<u8>)> {
        let more = self.more.take()?;
        Some((more, self.answer.take()))
    }

    /// Continues to send. `more` is the rest of the answer, if it is not complete.
    pub fn put_back(&mut self, more: Option<Box<Answering>>, bytes: Vec<u8>, now: Instant) -> Step {
        self.more = more;
        self.answer.set(bytes);
        // The delay was the daemon's.
        self.deadline = now + PATIENCE;
        self.on_writable(None)
    }

    /// Sends what fits.
    pub fn on_writable(&mut self, now: Option<Instant>) -> Step {
        let (sent, moved) = self.answer.send(&self.socket);
        if let (Some(now), true) = (now, moved) {
            self.deadline = now + PATIENCE;
        }
        match sent {
            Sent::All if self.more.is_some() => Step::GoOn,
            Sent::All | Sent::Lost => Step::Close,
            Sent::Part => Step::AwaitRoom,
        }
    }
}
