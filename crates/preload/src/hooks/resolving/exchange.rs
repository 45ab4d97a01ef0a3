//! Questions to a server over TCP (RFC 7766), by a socket as the program itself would make one: its connection goes to the tenant's
//! stack.

use core::net::IpAddr;

use libc::{c_int, pollfd};
use netchannel_abi::address::Address;

use super::super::{data, descriptors, lifecycle, readiness};
use crate::descriptors::names;
use crate::ground::{clock, real, sys};
use crate::resolver::{Question, Reply};

/// The port of DNS.
const DNS: u16 = 53;

/// A number for a question.
pub fn random() -> u16 {
    let [low, high, ..] = sys::random().to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Asks all questions at once, for so many seconds, and again those of which a server that ends its connections early knew nothing
/// more. `None` where no proper answer came.
pub fn ask(server: IpAddr, questions: &[Question], seconds: u32) -> Vec<Option<Reply>> {
    let start = clock::nanoseconds();
    let limit = i64::from(seconds) * 1_000_000_000;
    let mut replies: Vec<Option<Reply>> = vec![None; questions.len()];
    loop {
        let open = replies.iter().filter(|reply| reply.is_none()).count();
        if open == 0 {
            break;
        }
        let Some(connection) = Connection::open(server, (limit, start)) else {
            break;
        };
        connection.converse(questions, &mut replies);
        if replies.iter().filter(|reply| reply.is_none()).count() == open {
            break;
        }
    }
    replies
}

/// A connection to a server; it is closed when it is dropped, and no child or later program of this process has it.
struct Connection {
    fd: c_int,
    limit: i64,
    start: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the library's own descriptor.
        unsafe { descriptors::close(self.fd) };
    }
}

impl Connection {
    fn open(server: IpAddr, (limit, start): (i64, u64)) -> Option<Self> {
        let (family, to) = match server {
            IpAddr::V4(v4) => (libc::AF_INET, Address::v4(v4.octets(), DNS)),
            IpAddr::V6(v6) => (libc::AF_INET6, Address::v6(v6.octets(), DNS, 0)),
        };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer.
        let fd = unsafe { lifecycle::socket(family, kind, 0) };
        if fd < 0 {
            return None;
        }
        let made = Self { fd, limit, start };
        let (address, length) = names::to_sockaddr(&to);
        let length = libc::socklen_t::try_from(length).ok()?;
        // SAFETY: a local address of that length.
        let connected = unsafe { lifecycle::connect(fd, (&raw const address).cast(), length) };
        if connected == 0 {
            return Some(made);
        }
        let is_underway = real::errno() == libc::EINPROGRESS;
        (is_underway && made.wait(libc::POLLOUT) && made.error() == 0).then_some(made)
    }

    /// Waits until it is ready; `false` where that takes too long.
    fn wait(&self, events: i16) -> bool {
        loop {
            let left = clock::remaining(self.limit, self.start) / 1_000_000;
            let mut set = pollfd {
                fd: self.fd,
                events,
                revents: 0,
            };
            let timeout = c_int::try_from(left).unwrap_or(c_int::MAX);
            // SAFETY: one local entry.
            match unsafe { readiness::poll(&raw mut set, 1, timeout) } {
                0 => return false,
                1 => return true,
                _ if real::errno() == libc::EINTR => {}
                _ => return false,
            }
        }
    }

    fn error(&self) -> c_int {
        let (mut error, mut length) = (0 as c_int, 4);
        // SAFETY: locals of that length.
        let got = unsafe {
            let value = (&raw mut error).cast();
            lifecycle::getsockopt(
                self.fd,
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                value,
                &raw mut length,
            )
        };
        if got == 0 { error } else { libc::EIO }
    }

    /// Repeats a call that does not wait, until it moved bytes; `None` at the end of the connection, an error or the time.
    fn moved(&self, events: i16, call: impl Fn() -> isize) -> Option<usize> {
        loop {
            match usize::try_from(call()) {
                Ok(0) => return None,
                Ok(count) => return Some(count),
                Err(_) => match real::errno() {
                    libc::EINTR => {}
                    libc::EAGAIN if self.wait(events) => {}
                    _ => return None,
                },
            }
        }
    }

    fn send(&self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let flags = libc::MSG_NOSIGNAL;
            // SAFETY: bytes of the library.
            let send = || unsafe { data::send(self.fd, bytes.as_ptr().cast(), bytes.len(), flags) };
            let count = self.moved(libc::POLLOUT, send)?;
            bytes = bytes.get(count..)?;
        }
        Some(())
    }

    /// Fills all of a buffer.
    fn receive(&self, buffer: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = buffer.get_mut(done..)?;
            let (place, room) = (rest.as_mut_ptr(), rest.len());
            // SAFETY: a buffer of the library, of that room.
            let receive = || unsafe { data::recv(self.fd, place.cast(), room, 0) };
            done += self.moved(libc::POLLIN, receive)?;
        }
        Some(())
    }

    /// Asks what is open and takes answers in any order. What comes unasked ends the connection.
    fn converse(&self, questions: &[Question], replies: &mut [Option<Reply>]) -> Option<()> {
        let mut all = Vec::new();
        for (question, _) in open(questions, replies) {
            let message = question.message();
            all.extend_from_slice(&u16::try_from(message.len()).ok()?.to_be_bytes());
            all.extend_from_slice(&message);
        }
        self.send(&all)?;
        while open(questions, replies).next().is_some() {
            let mut length = [0; 2];
            self.receive(&mut length)?;
            let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
            self.receive(&mut message)?;
            let mut read = open(questions, replies)
                .filter_map(|(question, at)| Some((Reply::read(&message, question)?, at)));
            let (reply, at) = read.next()?;
            drop(read);
            *replies.get_mut(at)? = Some(reply);
        }
        Some(())
    }
}

/// The questions without an answer, and their places.
fn open<'a>(
    questions: &'a [Question],
    replies: &'a [Option<Reply>],
) -> impl Iterator<Item = (&'a Question, usize)> {
    let all = questions.iter().zip(replies).enumerate();
    all.filter_map(|(at, (question, reply))| reply.is_none().then_some((question, at)))
}
