//! Questions of the guest's programs to name servers: a datagram socket for each of those who ask. The library leads it to the tenant's stack,
//! as that of any program's own resolver.

use crate::address::{from_call, to_call};
use netchannel_abi::address::INET;
use netchannel_guest::Datagram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrLike, SockaddrStorage, recvfrom, sendto,
    socket,
};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// As many as a tenant may have. Beyond that questions are lost, as datagrams may be.
pub const MOST_SOCKETS: usize = 256;
/// The longest answer.
const MOST_ANSWER: usize = 1 << 16;

/// A socket of one that asks, for servers of one family.
#[derive(Debug)]
struct Asker {
    number: u64,
    family: u16,
    socket: OwnedFd,
}

/// All of them, by their places in the epoll set.
#[derive(Debug, Default)]
pub struct Askers(Vec<Option<Asker>>);

impl Askers {
    /// Sends a question. A socket that is made for it is named from `first` on.
    pub fn ask(&mut self, question: &Datagram, epoll: &Epoll, first: u64) {
        let is_its =
            |one: &Asker| (one.number, one.family) == (question.asker, question.server.family);
        let mut all = self.0.iter().flatten();
        if let Some(known) = all.find(|one| is_its(one)) {
            return send(&known.socket, question);
        }
        let Some(place) = self.place() else {
            return;
        };
        let family = if question.server.family == INET {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let Ok(socket) = socket(family, SockType::Datagram, flags, None) else {
            return;
        };
        send(&socket, question);
        let event = EpollEvent::new(EpollFlags::EPOLLIN, first + place as u64);
        if epoll.add(&socket, event).is_ok()
            && let Some(free) = self.0.get_mut(place)
        {
            *free = Some(Asker {
                number: question.asker,
                family: question.server.family,
                socket,
            });
        }
    }

    fn place(&mut self) -> Option<usize> {
        let free = self.0.iter().position(Option::is_none);
        free.or_else(|| {
            (self.0.len() < MOST_SOCKETS).then(|| {
                self.0.push(None);
                self.0.len() - 1
            })
        })
    }

    /// The next answer at the socket of a place.
    pub fn answer(&mut self, place: usize) -> Option<Datagram> {
        let entry = self.0.get_mut(place)?;
        let asker = entry.as_ref()?;
        let mut room = vec![0; MOST_ANSWER];
        match recvfrom::<SockaddrStorage>(asker.socket.as_raw_fd(), &mut room) {
            Ok((length, Some(from))) if length > 0 => {
                room.truncate(length);
                Some(Datagram {
                    asker: asker.number,
                    server: from_call(named(&from)?),
                    bytes: room,
                })
            }
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => None,
            Err(_) => {
                // Nobody answers: the next question tries again.
                *entry = None;
                None
            }
        }
    }

    /// Nobody asks under this number any more.
    pub fn forget(&mut self, number: u64) {
        for entry in &mut self.0 {
            let _ = entry.take_if(|one| one.number == number);
        }
    }

    /// The guest is gone.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn send(socket: &OwnedFd, question: &Datagram) {
    let to = to_call(&question.server);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let send = || sendto(socket.as_raw_fd(), &question.bytes, &to, flags);
    // An error may be of an earlier datagram, which its server refused; who asks asks again.
    let _ = send().or_else(|_| send());
}

fn named(from: &SockaddrStorage) -> Option<SocketAddr> {
    match from.family()? {
        AddressFamily::Inet => {
            let v4 = from.as_sockaddr_in()?;
            Some(SocketAddr::from((v4.ip(), v4.port())))
        }
        _ => {
            let v6 = from.as_sockaddr_in6()?;
            Some(SocketAddr::from((v6.ip(), v6.port())))
        }
    }
}
