//! Receives a stream by every call that receives, and compares it.

use std::sync::atomic::{AtomicU64, Ordering};

use netchannel_testkit::support::{Random, set_int};
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

use crate::pipe::Pipe;
use crate::script::{LARGEST, Role, Script, Stream, call_size};
use crate::step::{Step, change_an_option, is_ready, set_time_limit};

/// Number of bytes that this process has received and compared.
pub static BYTES: AtomicU64 = AtomicU64::new(0);

/// Receives a stream and compares it.
pub struct Receiver {
    socket: Descriptor,
    stream: Stream,
    /// How long the stream is.
    pub total: usize,
    random: Random,
    /// Whether some bytes are urgent: a call ends before the last of them, and a splice can not go on there.
    urgent: bool,
    buffer: Vec<u8>,
    /// Whether a call that waits ends after a while.
    limited: bool,
    pipe: Option<Pipe>,
    name: String,
    /// How many bytes were received so far.
    pub position: usize,
}

/// The result of one call.
struct Attempt {
    answer: Outcome<usize>,
    /// Whether the bytes are in the buffer, from its start on.
    shown: bool,
    /// Whether the call says `EAGAIN` by itself. Another call, which may wait, is to be tried then.
    never_waits: bool,
}

fn plain(answer: Outcome<usize>) -> Attempt {
    Attempt {
        answer,
        shown: true,
        never_waits: false,
    }
}

impl Receiver {
    pub fn new(socket: Descriptor, script: &Script, role: Role) -> Self {
        Self {
            socket,
            stream: script.stream(role.other()),
            total: script.sends(role.other()),
            random: script.sizes(role, 2),
            urgent: script.urgent,
            buffer: vec![0; LARGEST],
            limited: false,
            pipe: None,
            name: format!(
                "seed {}, connection {}, {role:?}",
                script.seed, script.number
            ),
            position: 0,
        }
    }

    /// Goes on at a position, with other draws.
    pub fn resumed(self, position: usize, random: Random) -> Self {
        Self {
            position,
            random,
            ..self
        }
    }

    /// Makes one call, sometimes after a peek at the same bytes.
    pub fn step(&mut self) -> Step {
        let length = call_size(&mut self.random);
        if self.random.once_in(200) {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        if self.random.once_in(100) {
            let low = self.random.between(1, 2_000);
            let low = libc::c_int::try_from(low).unwrap_or(1);
            set_int(self.socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, low);
        }
        if self.random.once_in(100) {
            self.limited = set_time_limit(self.socket, libc::SO_RCVTIMEO, &mut self.random);
        }
        if self.random.once_in(64) {
            change_an_option(self.socket, &mut self.random);
        }
        if self.random.once_in(16) {
            let buffer = &mut self.buffer[..length];
            match sys::recv(self.socket, buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
                Ok(size) => self.compare(size, "looked at"),
                // The peek gets the reset in place of the next call.
                Err(errno) if Step::of(errno) == Step::Broken(errno) => return Step::of(errno),
                Err(_) => {}
            }
        }
        let Attempt {
            answer,
            shown,
            never_waits,
        } = self.call(length);
        match answer {
            Ok(0) => Step::End,
            Ok(size) => {
                if shown {
                    self.compare(size, "received");
                }
                self.position += size;
                assert!(self.position <= self.total, "{}: too much", self.name);
                BYTES.fetch_add(size as u64, Ordering::Relaxed);
                Step::Moved
            }
            Err(Errno(libc::EAGAIN)) if never_waits || self.limited => Step::Moved,
            Err(errno) => Step::of(errno),
        }
    }

    fn call(&mut self, length: usize) -> Attempt {
        let socket = self.socket;
        let rest = self.total.saturating_sub(self.position).max(1);
        let kind = self.random.below(16);
        let middle = self.random.below(length + 1);
        let buffer = &mut self.buffer[..length];
        let (first, second) = buffer.split_at_mut(middle);
        plain(match kind {
            0 => sys::read(socket, buffer),
            1 => sys::readv(socket, &mut [first, &mut [], second]),
            2 => sys::recv_vector(socket, &mut [first, second], 0).map(|(size, _)| size),
            3 => sys::preadv2(socket, &mut [first, second], 0),
            4 => sys::number_read(socket, buffer),
            5 => sys::number_recv(socket, buffer, 0),
            6 => sys::recvfrom(socket, buffer, 0).map(|(size, _)| size),
            // No end follows the last byte of one whose sender waits for an answer.
            7 => sys::recv(socket, &mut buffer[..length.min(rest)], libc::MSG_WAITALL),
            8 => return self.several(length),
            9 => {
                return Attempt {
                    answer: sys::recv(socket, buffer, libc::MSG_TRUNC),
                    shown: false,
                    never_waits: false,
                };
            }
            10 if !self.urgent => return self.splice(length),
            10 => self.expect_no_urgent_byte(),
            11 => return self.as_many_as_told(length),
            12 => return self.without_waiting(length),
            13 => self.up_to_a_bad_part(middle),
            _ => sys::recv(socket, buffer, 0),
        })
    }

    /// Several messages in one call.
    fn several(&mut self, length: usize) -> Attempt {
        let first = self.random.below(length) + 1;
        let second = self.random.below(length) + 1;
        let mut bytes = vec![0; second];
        let parts = &mut [&mut self.buffer[..first], &mut bytes[..]];
        let answer = sys::recvmmsg(self.socket, parts, libc::MSG_WAITFORONE).map(|sizes| {
            let sizes: Vec<_> = sizes.iter().map(|size| *size as usize).collect();
            let begin = sizes.first().copied().unwrap_or(0);
            let end = sizes.get(1).copied().unwrap_or(0);
            self.compare(begin, "received");
            self.compare_at(self.position + begin, &bytes[..end], "received behind it");
            begin + end
        });
        Attempt {
            answer,
            shown: false,
            never_waits: false,
        }
    }

    fn splice(&mut self, length: usize) -> Attempt {
        let flags = [0, libc::SPLICE_F_NONBLOCK][self.random.below(2)];
        let pipe = self.pipe.get_or_insert_with(Pipe::new);
        let answer = sys::splice(self.socket, pipe.input, Pipe::room(length), flags);
        if let Ok(size) = answer {
            pipe.take(&mut self.buffer[..size]);
        }
        Attempt {
            answer,
            shown: true,
            never_waits: flags != 0,
        }
    }

    /// `FIONREAD` promises no more than there is.
    fn as_many_as_told(&mut self, length: usize) -> Attempt {
        let told = sys::ioctl_int(self.socket, libc::FIONREAD, 0);
        let told = usize::try_from(told.unwrap_or(0)).unwrap_or(0);
        let attempt = self.receive_at_once(length);
        let few = attempt
            .answer
            .is_ok_and(|size| !self.urgent && size < told.min(length))
            || told > 0 && attempt.answer == Err(Errno(libc::EAGAIN));
        assert!(
            !few,
            "{}: {told} bytes told, and {:?} of {length}",
            self.name, attempt.answer
        );
        attempt
    }

    /// What is readable gives bytes, an end or an error.
    fn without_waiting(&mut self, length: usize) -> Attempt {
        let ready = is_ready(self.socket, libc::POLLIN);
        let attempt = self.receive_at_once(length);
        assert!(
            !ready || attempt.answer != Err(Errno(libc::EAGAIN)),
            "{}: readable, and nothing there at {}",
            self.name,
            self.position
        );
        attempt
    }

    /// Urgent bytes are in the stream.
    fn expect_no_urgent_byte(&mut self) -> Outcome<usize> {
        let answer = sys::recv(self.socket, &mut self.buffer[..1], libc::MSG_OOB);
        assert_eq!(answer, Err(Errno(libc::EINVAL)), "{}", self.name);
        Err(Errno(libc::EINTR))
    }

    fn receive_at_once(&mut self, length: usize) -> Attempt {
        Attempt {
            answer: sys::recv(self.socket, &mut self.buffer[..length], libc::MSG_DONTWAIT),
            shown: true,
            never_waits: true,
        }
    }

    /// A vector whose second part cannot be written: some of the first part is filled, or nothing is taken.
    fn up_to_a_bad_part(&mut self, length: usize) -> Outcome<usize> {
        let vector = [sys::entry_mut(&mut self.buffer[..length]), sys::bad_entry()];
        // SAFETY: the first entry is writable for its length, and no memory is at the second one.
        match unsafe { sys::readv_raw(self.socket, &vector) } {
            Err(Errno(libc::EFAULT)) => Err(Errno(libc::EINTR)),
            Ok(size) => {
                assert!(
                    size <= length,
                    "{}: bytes for a part that is not there",
                    self.name
                );
                Ok(size)
            }
            other => other,
        }
    }

    fn compare(&self, size: usize, what: &str) {
        self.compare_at(self.position, &self.buffer[..size], what);
    }

    fn compare_at(&self, position: usize, bytes: &[u8], what: &str) {
        assert!(
            position + bytes.len() <= self.total,
            "{}: {what} more than was sent",
            self.name
        );
        let expected = self.stream.at(position, bytes.len());
        if bytes == expected {
            return;
        }
        let mut pairs = bytes.iter().zip(expected);
        let place = pairs.position(|(byte, wanted)| byte != wanted);
        panic!(
            "{}: {what} a wrong byte at {}",
            self.name,
            position + place.unwrap_or(0)
        );
    }
}
