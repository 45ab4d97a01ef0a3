//! Sends a stream by every call that sends, each with sizes, flags and parts as they are drawn.

use netchannel_testkit::support::{Random, set_int};
use netchannel_testkit::sys::{self, Descriptor, Errno, Outcome};

use crate::pipe::Pipe;
use crate::script::{Role, Script, Stream, call_size};
use crate::step::{Step, change_an_option, is_ready, set_time_limit};

/// Sends a stream.
pub struct Sender {
    socket: Descriptor,
    stream: Stream,
    total: usize,
    random: Random,
    /// Whether some bytes are urgent.
    urgent: bool,
    /// Whether a call that waits ends after a while.
    limited: bool,
    /// The bytes that a splice has left over come before all others.
    pipe: Option<Pipe>,
    /// How many bytes were sent so far.
    pub position: usize,
    /// Which of the calls was the last one.
    pub kind: usize,
    /// Whether the last call sent a part, and may have met an error after it which no later call is told.
    pub may_hide_an_error: bool,
}

/// The result of one call.
struct Attempt {
    answer: Outcome<usize>,
    /// Whether the call says `EAGAIN` by itself. Another call, which may wait, is to be tried then.
    never_waits: bool,
    /// Whether the call has steps, of which not all were done.
    is_partial: bool,
}

fn plain(answer: Outcome<usize>) -> Attempt {
    Attempt {
        answer,
        never_waits: false,
        is_partial: false,
    }
}

impl Sender {
    pub fn new(socket: Descriptor, script: &Script, role: Role) -> Self {
        Self {
            socket,
            stream: script.stream(role),
            total: script.sends(role),
            random: script.sizes(role, 1),
            urgent: script.urgent,
            limited: false,
            pipe: None,
            position: 0,
            kind: 0,
            may_hide_an_error: false,
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

    /// Whether no byte behind the position has left the stream.
    pub fn is_at_its_position(&self) -> bool {
        self.pipe.as_ref().is_none_or(|pipe| pipe.filled == 0)
    }

    /// Makes one call.
    pub fn step(&mut self) -> Step {
        if self.position == self.total {
            return Step::End;
        }
        let length = call_size(&mut self.random).min(self.total - self.position);
        if self.random.once_in(64) {
            let hold = libc::c_int::from(self.random.once_in(2));
            // A broken connection takes the option too.
            set_int(self.socket, libc::IPPROTO_TCP, libc::TCP_CORK, hold);
        }
        if self.random.once_in(64) {
            self.limited = set_time_limit(self.socket, libc::SO_SNDTIMEO, &mut self.random);
        }
        if self.random.once_in(64) {
            change_an_option(self.socket, &mut self.random);
        }
        let left = self.pipe.as_ref().map_or(0, |pipe| pipe.filled);
        let Attempt {
            answer,
            never_waits,
            is_partial,
        } = match left {
            0 => self.call(length),
            left => self.splice(left),
        };
        self.may_hide_an_error = is_partial;
        match answer {
            Ok(size) => {
                let most = length.max(left);
                assert!(size > 0 && size <= most, "sent {size} of {most}");
                self.position += size;
                Step::Moved
            }
            Err(Errno(libc::EAGAIN)) if never_waits || self.limited => Step::Moved,
            Err(errno) => Step::of(errno),
        }
    }

    fn call(&mut self, length: usize) -> Attempt {
        let bytes = self.stream.at(self.position, length);
        let (first, second) = bytes.split_at(self.random.below(length + 1));
        let (socket, flags) = (self.socket, libc::MSG_NOSIGNAL);
        self.kind = self.random.below(16);
        plain(match self.kind {
            0 => sys::write(socket, bytes),
            1 => sys::writev(socket, &[first, &[], second]),
            2 => sys::send_vector(socket, &[first, second], flags),
            3 => sys::pwritev2(socket, &[first, second], 0),
            4 => sys::number_write(socket, bytes),
            5 => sys::number_send(socket, bytes, flags),
            6 => sys::number_writev(socket, &[first, second]),
            7 | 8 => sys::send(socket, bytes, flags | libc::MSG_MORE),
            9 => return self.several(bytes),
            10 => return self.file(length),
            11 => return self.fill_and_splice(bytes),
            12 => return self.without_waiting(bytes),
            13 if self.urgent => sys::send(socket, bytes, flags | libc::MSG_OOB),
            13 => self.up_to_a_bad_part(first),
            _ => sys::send(socket, bytes, flags),
        })
    }

    /// Several messages in one call, which ends with the first one that is not sent whole.
    fn several(&mut self, bytes: &[u8]) -> Attempt {
        let (first, rest) = bytes.split_at(self.random.below(bytes.len() + 1));
        let (second, third) = rest.split_at(self.random.below(rest.len() + 1));
        // An empty message, as the first one or the last one, is sent as well.
        let messages = [first, second, third];
        let sent = match sys::sendmmsg(self.socket, &messages, libc::MSG_NOSIGNAL) {
            Ok(sent) => sent,
            Err(errno) => return plain(Err(errno)),
        };
        let parts = sent.iter().zip(messages);
        let whole = parts
            .clone()
            .take_while(|(size, message)| **size as usize == message.len());
        assert!(
            whole.count() + 1 >= sent.len(),
            "sendmmsg goes on behind a part: {sent:?} of {:?}",
            messages.map(<[u8]>::len)
        );
        let size: usize = parts.map(|(size, _)| *size as usize).sum();
        let answer = match size {
            // Only an empty message was sent, and nothing says why the next one was not.
            0 => Err(Errno(libc::EINTR)),
            size => Ok(size),
        };
        Attempt {
            is_partial: size < bytes.len(),
            ..plain(answer)
        }
    }

    fn file(&mut self, length: usize) -> Attempt {
        let (file, begin) = self.stream.in_a_file(self.position);
        let mut offset = begin;
        let answer = sys::sendfile(self.socket, file, Some(&mut offset), length);
        let moved = usize::try_from(offset - begin).unwrap_or(usize::MAX);
        assert_eq!(
            moved,
            answer.unwrap_or(0),
            "the offset moves by what was sent"
        );
        Attempt {
            is_partial: answer.is_ok_and(|size| size < length),
            ..plain(answer)
        }
    }

    fn fill_and_splice(&mut self, bytes: &[u8]) -> Attempt {
        let pipe = self.pipe.get_or_insert_with(Pipe::new);
        let filled = pipe.fill(bytes);
        self.splice(filled)
    }

    fn splice(&mut self, length: usize) -> Attempt {
        let flags = [0, libc::SPLICE_F_MORE, libc::SPLICE_F_NONBLOCK][self.random.below(3)];
        let pipe = self.pipe.get_or_insert_with(Pipe::new);
        let answer = sys::splice(pipe.output, self.socket, length, flags);
        pipe.filled -= answer.unwrap_or(0);
        Attempt {
            answer,
            never_waits: flags == libc::SPLICE_F_NONBLOCK,
            is_partial: answer.is_ok_and(|size| size < length),
        }
    }

    /// What is ready for sending takes a byte.
    fn without_waiting(&mut self, bytes: &[u8]) -> Attempt {
        let ready = is_ready(self.socket, libc::POLLOUT);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let answer = sys::send(self.socket, bytes, flags);
        assert!(
            !ready || answer != Err(Errno(libc::EAGAIN)),
            "ready for sending, and takes nothing at {}",
            self.position
        );
        Attempt {
            never_waits: true,
            ..plain(answer)
        }
    }

    /// A vector whose second part cannot be read: some of the first part is sent, or nothing.
    fn up_to_a_bad_part(&self, first: &[u8]) -> Outcome<usize> {
        let vector = [sys::entry(first), sys::bad_entry()];
        // SAFETY: the first entry is readable for its length, and no memory is at the second one.
        match unsafe { sys::writev_raw(self.socket, &vector) } {
            Err(Errno(libc::EFAULT)) => Err(Errno(libc::EINTR)),
            Ok(size) => {
                assert!(size <= first.len(), "bytes of a part that is not there");
                Ok(size)
            }
            other => other,
        }
    }
}
