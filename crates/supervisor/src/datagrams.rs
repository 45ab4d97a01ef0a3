//! Calls on sockets that are not TCP's: those of name service are answered, all others are the kernel's.

use std::ffi::c_int;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::calls::{Answer, Calls, give_value, put_address, read_address};
use crate::names::{LONGEST, PORT};
use crate::notify::Call;
use crate::system::{self, ADDRESS, Sys};
use crate::threads;

/// Parts of a message that an answer is spread over.
const PARTS: usize = 8;

const fn fail(error: c_int) -> Answer {
    Answer::Result(Err(error))
}

impl Calls {
    /// A call on the socket `end`, which is none of TCP's.
    pub fn of_other(&mut self, call: &Call, end: &OwnedFd, inode: u64) -> Answer {
        if !self.serves_names {
            return Answer::Kernel;
        }
        let is_known = self.names.find(inode).is_some();
        match call.number {
            libc::SYS_connect => match read_address(call) {
                Ok(address) if is_server(&address) => self.ask_at(call, end, inode, address),
                _ if is_known => fail(libc::ENETUNREACH),
                _ => Answer::Kernel,
            },
            libc::SYS_sendto => self.send_to(call, end, inode),
            _ if is_known => self.of_asker(call, end, inode),
            _ => Answer::Kernel,
        }
    }

    /// The socket asks at this server from now on.
    fn ask_at(&mut self, call: &Call, end: &OwnedFd, inode: u64, server: Vec<u8>) -> Answer {
        match self.asker(call, end, inode) {
            Ok(Some(inode)) => {
                if let Some(asker) = self.names.find(inode) {
                    asker.server = server;
                }
                Answer::Result(Ok(0))
            }
            Ok(None) => Answer::Kernel,
            Err(error) => fail(error),
        }
    }

    /// The inode of the program's end of a socket that asks for names. One that did not is made one. `None` for what is no socket of
    /// datagrams.
    fn asker(&mut self, call: &Call, end: &OwnedFd, inode: u64) -> Sys<Option<u64>> {
        if self.names.find(inode).is_some() {
            return Ok(Some(inode));
        }
        let option = |name| int_option(end.as_fd(), name);
        let domain = option(libc::SO_DOMAIN);
        let is_datagram = option(libc::SO_TYPE) == Some(libc::SOCK_DGRAM);
        let Some(domain) = domain.filter(|one| [libc::AF_INET, libc::AF_INET6].contains(one))
        else {
            return Ok(None);
        };
        if !is_datagram || has_library(call.thread) {
            return Ok(None);
        }
        let name = system::name(end.as_fd(), false)?;
        let never = system::never_waits(end.as_fd());
        let made = self.names.add(&self.epoll, domain, name, never)?;
        let (number, inode) = (call.int(0), system::inode(made.as_fd())?);
        let exec = closes_on_exec(call.thread, number);
        (self.notify).replace(call.id, made.as_fd(), number, exec)?;
        Ok(Some(inode))
    }

    fn send_to(&mut self, call: &Call, end: &OwnedFd, inode: u64) -> Answer {
        let place = (call.arguments[4], call.int(5));
        let address = match usize::try_from(place.1) {
            Ok(length) if length <= ADDRESS => threads::read(call.thread, place.0, length),
            _ => return Answer::Kernel,
        };
        let Ok(server) = address else {
            return Answer::Kernel;
        };
        let is_known = self.names.find(inode).is_some();
        if !is_server(&server) {
            return if is_known {
                fail(libc::ENETUNREACH)
            } else {
                Answer::Kernel
            };
        }
        let Some(length) = usize::try_from(call.arguments[2])
            .ok()
            .filter(|one| *one <= LONGEST)
        else {
            return fail(libc::EMSGSIZE);
        };
        let packet = match threads::read(call.thread, call.arguments[1], length) {
            Ok(packet) => packet,
            Err(error) => return fail(error),
        };
        match self.ask_at(call, end, inode, server) {
            Answer::Result(Ok(_)) => {}
            other => return other,
        }
        // The socket may have become another meanwhile.
        let end = self.threads.descriptor(call.thread, call.int(0));
        if let Ok(inode) = end.and_then(|end| system::inode(end.as_fd())) {
            self.names.ask(inode, &packet);
        }
        Answer::Result(Ok(i64::try_from(length).unwrap_or(0)))
    }

    fn of_asker(&mut self, call: &Call, end: &OwnedFd, inode: u64) -> Answer {
        let Some(asker) = self.names.find(inode) else {
            return Answer::Kernel;
        };
        let place = (call.arguments[1], call.arguments[2]);
        match call.number {
            libc::SYS_getsockname => put_address(call.thread, place, &asker.name).into(),
            libc::SYS_getpeername if asker.server.is_empty() => fail(libc::ENOTCONN),
            libc::SYS_getpeername => put_address(call.thread, place, &asker.server).into(),
            libc::SYS_getsockopt => {
                let value = match (call.int(1), call.int(2)) {
                    (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
                    (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
                    (libc::SOL_SOCKET, libc::SO_DOMAIN) => asker.domain,
                    (libc::SOL_SOCKET, _) => return Answer::Kernel,
                    _ => 0,
                };
                give_value(call, &value.to_ne_bytes()).into()
            }
            libc::SYS_setsockopt if call.int(1) == libc::SOL_SOCKET => Answer::Kernel,
            libc::SYS_setsockopt | libc::SYS_bind => Answer::Result(Ok(0)),
            libc::SYS_recvfrom => {
                let server = asker.server.clone();
                match take(call, end, call.int(3)) {
                    Ok(packet) => received_from(call, &packet, &server),
                    Err(answer) => answer,
                }
            }
            libc::SYS_recvmsg => {
                let server = asker.server.clone();
                match take(call, end, call.int(2)) {
                    Ok(packet) => received_message(call, &packet, &server),
                    Err(answer) => answer,
                }
            }
            libc::SYS_shutdown => Answer::Kernel,
            _ => fail(libc::EOPNOTSUPP),
        }
    }
}

/// What waits for the program. A call that waits for it is the kernel's: it does not learn who answered, but that it is answered.
fn take(_call: &Call, end: &OwnedFd, flags: c_int) -> Result<Vec<u8>, Answer> {
    if flags & !(libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC) != 0 {
        return Err(Answer::Kernel);
    }
    let mut room = vec![0; 1 << 16];
    match system::receive(end.as_fd(), &mut room) {
        Ok(0) => Err(Answer::Kernel),
        Ok(got) => {
            room.truncate(got);
            Ok(room)
        }
        Err(libc::EAGAIN)
            if flags & libc::MSG_DONTWAIT == 0 && !system::never_waits(end.as_fd()) =>
        {
            Err(Answer::Kernel)
        }
        Err(error) => Err(fail(error)),
    }
}

fn received_from(call: &Call, packet: &[u8], server: &[u8]) -> Answer {
    let room = usize::try_from(call.arguments[2]).unwrap_or(usize::MAX);
    let given = &packet[..room.min(packet.len())];
    let done = threads::write(call.thread, call.arguments[1], given)
        .and_then(|()| put_address(call.thread, (call.arguments[4], call.arguments[5]), server));
    Answer::Result(done.map(|()| i64::try_from(given.len()).unwrap_or(0)))
}

/// The words of a message: name and its length, parts and their count, what goes with it and how much, flags.
fn received_message(call: &Call, packet: &[u8], server: &[u8]) -> Answer {
    let given = || {
        let at = call.arguments[1];
        let words = |at, count: usize| {
            let bytes = threads::read(call.thread, at, 8 * count)?;
            let words = bytes
                .chunks_exact(8)
                .map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            Ok::<Vec<u64>, c_int>(words.collect())
        };
        let message = words(at, 7)?;
        let count = usize::try_from(message[3]).unwrap_or(0).min(PARTS);
        let parts = words(message[2], 2 * count)?;
        let mut left = packet;
        for part in parts.chunks_exact(2) {
            let length = usize::try_from(part[1])
                .unwrap_or(usize::MAX)
                .min(left.len());
            let (now, later) = left.split_at(length);
            threads::write(call.thread, part[0], now)?;
            left = later;
        }
        if message[0] != 0 {
            put_address(call.thread, (message[0], at + 8), server)?;
        }
        let flags = if left.is_empty() { 0 } else { libc::MSG_TRUNC };
        threads::write(call.thread, at + 40, &0_u64.to_ne_bytes())?;
        threads::write(call.thread, at + 48, &flags.to_ne_bytes())?;
        Ok(i64::try_from(packet.len() - left.len()).unwrap_or(0))
    };
    Answer::Result(given())
}

fn int_option(fd: BorrowedFd<'_>, name: c_int) -> Option<c_int> {
    let value = system::option(fd, libc::SOL_SOCKET, name, 4).ok()?;
    value.try_into().ok().map(c_int::from_ne_bytes)
}

/// Whether an address is one of name service.
fn is_server(address: &[u8]) -> bool {
    let Some(family) = address.get(..2) else {
        return false;
    };
    let family = c_int::from(u16::from_ne_bytes([family[0], family[1]]));
    let is_inet = family == libc::AF_INET || family == libc::AF_INET6;
    is_inet && address.len() >= 16 && address.get(2..4) == Some(&PORT.to_be_bytes())
}

/// Whether the thread's program has the library, which finds names itself: after the C library, whose own question must fail at
/// once, as it does where there is no network.
fn has_library(thread: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{thread}/maps")).unwrap_or_default();
    maps.contains("/libnetchannel.so")
}

fn closes_on_exec(thread: u32, number: c_int) -> bool {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{number}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|word| c_int::from_str_radix(word.trim(), 8).ok());
    flags.unwrap_or(libc::O_CLOEXEC) & libc::O_CLOEXEC != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_port() {
        let address = |family: c_int, port: u16, length: usize| {
            let mut bytes = vec![0; length];
            bytes[..2].copy_from_slice(&u16::try_from(family).unwrap().to_ne_bytes());
            bytes[2..4].copy_from_slice(&port.to_be_bytes());
            bytes
        };
        assert!(is_server(&address(libc::AF_INET, 53, 16)));
        assert!(is_server(&address(libc::AF_INET6, 53, 28)));
        assert!(!is_server(&address(libc::AF_INET, 54, 16)));
        assert!(!is_server(&address(libc::AF_UNIX, 53, 16)));
        assert!(!is_server(&address(libc::AF_INET, 53, 8)));
        assert!(!is_server(&[]));
    }
}
