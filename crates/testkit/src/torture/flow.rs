//! One end of one connection: a sender and a receiver that make one step at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use netchannel_testkit::support::{Random, close_with_reset};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::script::{Ending, LARGEST, Role, Script, Stream, call_size};

/// Number of bytes that this process has received and compared.
pub static BYTES: AtomicU64 = AtomicU64::new(0);

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes were moved.
    Moved,
    /// No progress is possible now.
    Wait,
    /// All bytes are sent, or the stream has ended.
    End,
    /// The connection is broken.
    Broken(Errno),
}

fn broken(errno: Errno) -> Step {
    match errno.0 {
        libc::EAGAIN => Step::Wait,
        libc::EINTR => Step::Moved,
        _ => Step::Broken(errno),
    }
}

/// Sends a stream.
pub struct Sender {
    socket: Descriptor,
    stream: Stream,
    total: usize,
    random: Random,
    /// How many bytes were sent so far.
    pub position: usize,
}

impl Sender {
    pub fn new(socket: Descriptor, script: &Script, role: Role) -> Self {
        Self {
            socket,
            stream: script.stream(role),
            total: script.sends(role),
            random: script.sizes(role, 1),
            position: 0,
        }
    }

    /// Makes one call.
    pub fn step(&mut self) -> Step {
        if self.position == self.total {
            return Step::End;
        }
        let length = call_size(&mut self.random).min(self.total - self.position);
        let bytes = self.stream.at(self.position, length);
        let flags = libc::MSG_NOSIGNAL;
        let (first, second) = bytes.split_at(self.random.below(length + 1));
        let answer = match self.random.below(4) {
            0 => sys::write(self.socket, bytes),
            1 => sys::writev(self.socket, &[first, &[], second]),
            2 => sys::send_vector(self.socket, &[first, second], flags),
            _ => sys::send(self.socket, bytes, flags),
        };
        match answer {
            Ok(size) => {
                assert!(size > 0 && size <= length, "sent {size} of {length}");
                self.position += size;
                Step::Moved
            }
            Err(errno) => broken(errno),
        }
    }
}

/// Receives a stream and compares it.
pub struct Receiver {
    socket: Descriptor,
    stream: Stream,
    total: usize,
    random: Random,
    buffer: Vec<u8>,
    name: String,
    /// How many bytes were received so far.
    pub position: usize,
}

impl Receiver {
    pub fn new(socket: Descriptor, script: &Script, role: Role) -> Self {
        Self {
            socket,
            stream: script.stream(role.other()),
            total: script.sends(role.other()),
            random: script.sizes(role, 2),
            buffer: vec![0; LARGEST],
            name: format!(
                "seed {}, connection {}, {role:?}",
                script.seed, script.number
            ),
            position: 0,
        }
    }

    /// Makes one call, sometimes after a peek at the same bytes.
    pub fn step(&mut self) -> Step {
        let length = call_size(&mut self.random);
        if self.random.once_in(200) {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        let buffer = &mut self.buffer[..length];
        if self.random.once_in(16) {
            match sys::recv(self.socket, buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
                Ok(size) => self.compare(size, "looked at"),
                // The peek gets the reset in place of the next call.
                Err(errno) if broken(errno) == Step::Broken(errno) => return broken(errno),
                Err(_) => {}
            }
        }
        let buffer = &mut self.buffer[..length];
        let middle = self.random.below(length + 1);
        let answer = match self.random.below(4) {
            0 => sys::read(self.socket, buffer),
            1 => {
                let (first, second) = buffer.split_at_mut(middle);
                sys::readv(self.socket, &mut [first, &mut [], second])
            }
            2 => {
                let (first, second) = buffer.split_at_mut(middle);
                sys::recv_vector(self.socket, &mut [first, second], 0).map(|(size, _)| size)
            }
            _ => sys::recv(self.socket, buffer, 0),
        };
        match answer {
            Ok(0) => Step::End,
            Ok(size) => {
                self.compare(size, "received");
                self.position += size;
                BYTES.fetch_add(size as u64, Ordering::Relaxed);
                Step::Moved
            }
            Err(errno) => broken(errno),
        }
    }

    fn compare(&self, size: usize, what: &str) {
        let position = self.position;
        assert!(
            position + size <= self.total,
            "{}: {what} more than was sent",
            self.name
        );
        let expected = self.stream.at(position, size);
        if self.buffer[..size] == *expected {
            return;
        }
        let place = self
            .buffer
            .iter()
            .zip(expected)
            .position(|(byte, wanted)| byte != wanted);
        panic!(
            "{}: {what} a wrong byte at {}",
            self.name,
            position + place.unwrap_or(0)
        );
    }
}

/// One end of a connection, driven by readiness.
pub struct Flow {
    pub socket: Descriptor,
    script: Script,
    role: Role,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    sender_broke: bool,
    /// How the stream of the other end ended, once it has.
    outcome: Option<Step>,
}

impl Flow {
    pub fn new(socket: Descriptor, script: Script, role: Role) -> Self {
        let receiver = (!script.aborts(role)).then(|| Receiver::new(socket, &script, role));
        let sender = Some(Sender::new(socket, &script, role));
        Self {
            socket,
            script,
            role,
            sender,
            receiver,
            sender_broke: false,
            outcome: None,
        }
    }

    /// Whether the end still wants to send.
    pub fn wants_to_send(&self) -> bool {
        self.sender.is_some()
    }

    fn name(&self) -> String {
        format!("{:?} as {:?}", self.script, self.role)
    }

    /// Makes at most `calls` calls while they make progress. True once the connection is done and closed.
    pub fn advance(&mut self, calls: usize) -> bool {
        let sending = self.send(calls);
        let receiving = self.receive(calls);
        if sending || receiving {
            return false;
        }
        if self.sender.is_none() && self.receiver.is_none() {
            self.close();
            return true;
        }
        false
    }

    /// Whether more could be sent at once.
    fn send(&mut self, calls: usize) -> bool {
        for _ in 0..calls {
            let Some(sender) = &mut self.sender else {
                return false;
            };
            match sender.step() {
                Step::Moved => {}
                Step::Wait => return false,
                Step::End => {
                    self.sender = None;
                    if !self.script.aborts(self.role) {
                        let answer = sys::shutdown(self.socket, libc::SHUT_WR);
                        let lenient = self.script.is_lenient(self.role);
                        assert!(answer.is_ok() || lenient, "{}: {answer:?}", self.name());
                    }
                }
                Step::Broken(errno) => {
                    self.expect_break(errno, "send");
                    self.sender = None;
                    self.sender_broke = true;
                }
            }
        }
        self.sender.is_some()
    }

    fn receive(&mut self, calls: usize) -> bool {
        if self.outcome.is_some() {
            // The first result counts, because an ordinary end follows a reset.
            return false;
        }
        for _ in 0..calls {
            let Some(receiver) = &mut self.receiver else {
                return false;
            };
            let step = receiver.step();
            match step {
                Step::Moved => continue,
                Step::Wait => return false,
                Step::End => {
                    let (position, total) = (receiver.position, receiver.total);
                    let whole = position == total || self.script.is_lenient(self.role);
                    assert!(whole, "{}: an end after {position}", self.name());
                }
                Step::Broken(errno) => self.expect_break(errno, "recv"),
            }
            self.outcome = Some(step);
            if self.script.is_lenient(self.role) {
                self.sender = None;
            }
            if self.script.ending != Ending::Killed {
                self.receiver = None;
            }
            return false;
        }
        self.receiver.is_some()
    }

    fn expect_break(&self, errno: Errno, call: &str) {
        let known = [libc::ECONNRESET, libc::EPIPE].contains(&errno.0);
        let expected = known && self.script.is_lenient(self.role);
        assert!(expected, "{}: {call}: {errno:?}", self.name());
    }

    fn close(&self) {
        if self.script.ending == Ending::Reset(self.role) {
            close_with_reset(self.socket);
        } else {
            let answer = sys::close(self.socket);
            assert!(answer.is_ok(), "{}: close: {answer:?}", self.name());
        }
    }

    /// Whether the stream of the other end has ended.
    pub fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// The connection's number, where it is a small one.
    pub fn key(&self) -> usize {
        usize::try_from(self.script.number).unwrap_or(usize::MAX)
    }

    /// How many bytes were received, and whether these must be all: the stream ended and the sender got no error, which
    /// it would have taken from the receiver.
    pub fn received(&self) -> (usize, bool) {
        let position = self
            .receiver
            .as_ref()
            .map_or(0, |receiver| receiver.position);
        (
            position,
            self.outcome == Some(Step::End) && !self.sender_broke,
        )
    }
}
