//! The control socket: one JSON line in, one JSON line out, then the connection ends.

use crate::visitors::{Visitor, Visitors};
use netchannel_control::types::{LONGEST_REQUEST, Request, Response};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Commands served at once.
const MOST_COMMANDS: usize = 64;
/// How long a command may take to ask, and to read its answer without any progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection of a command.
#[derive(Debug)]
pub struct Command {
    /// The connection.
    pub socket: OwnedFd,
    /// User that asks.
    pub user: u32,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

/// What is to be done with a connection.
#[derive(Debug)]
pub enum Step {
    /// Wait for more of the request.
    AwaitRequest,
    /// Answer this.
    Answer(Request),
    /// Wait for room for the rest of the answer.
    AwaitRoom,
    /// Close it.
    Close,
}

/// All connections of commands.
pub type Commands = Visitors<Command>;

impl Visitor for Command {
    const MOST: usize = MOST_COMMANDS;

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Commands {
    /// Takes a connection.
    pub fn open(&mut self, socket: OwnedFd, user: u32, now: Instant) -> u32 {
        self.add(Command {
            socket,
            user,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            deadline: now + PATIENCE,
        })
    }
}

impl Command {
    /// Reads what came.
    pub fn on_readable(&mut self) -> Step {
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
                self.answer = line;
                self.on_writable(None)
            }
            Err(_) => Step::Close,
        }
    }

    /// Sends what fits.
    pub fn on_writable(&mut self, now: Option<Instant>) -> Step {
        loop {
            let rest = self.answer.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                return Step::Close;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, rest, flags) {
                Ok(length) => {
                    self.sent += length;
                    if let Some(now) = now {
                        self.deadline = now + PATIENCE;
                    }
                }
                Err(Errno::AGAIN) => return Step::AwaitRoom,
                Err(Errno::INTR) => {}
                Err(_) => return Step::Close,
            }
        }
    }
}
