//! Where the guest's programs listen, the host's end listens for them: at any address, in its own namespace without addresses. The
//! tenant's published ports open by that, and other programs of the tenant find the guest.

use crate::address::from_call;
use crate::sink::number;
use netchannel_abi::address::Address;
use netchannel_guest::Families;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

/// Ports at which a guest may listen.
const MOST: usize = 1024;
/// Connections that may wait.
const BACKLOG: i32 = 4096;

/// A port and a family.
pub type Place = (u16, bool);

/// The listeners.
#[derive(Debug, Default)]
pub struct Listeners {
    all: BTreeMap<Place, TcpListener>,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub socket: OwnedFd,
    /// Where it comes from.
    pub from: Address,
    /// Where it arrived.
    pub to: Address,
}

impl Listeners {
    /// Listens at a port by these families only. Returns the listeners that are new, and why others can not be had.
    pub fn set(
        &mut self,
        port: u16,
        families: Families,
    ) -> (Vec<(Place, &TcpListener)>, Vec<Errno>) {
        let (mut new, mut failed) = (Vec::new(), Vec::new());
        for (six, wanted) in [(false, families.v4), (true, families.v6)] {
            let place = (port, six);
            if !wanted {
                self.all.remove(&place);
            } else if !self.all.contains_key(&place) {
                let made = if self.all.len() < MOST {
                    open(place)
                } else {
                    Err(Errno::ENOSPC)
                };
                match made {
                    Ok(listener) => {
                        self.all.insert(place, listener);
                        new.push(place);
                    }
                    Err(errno) => failed.push(errno),
                }
            }
        }
        let new = new.into_iter();
        let new = new.filter_map(|place| Some((place, self.all.get(&place)?)));
        (new.collect(), failed)
    }

    /// The guest is gone.
    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (Place, &TcpListener)> {
        self.all.iter().map(|(place, one)| (*place, one))
    }

    /// The next client at a place; `None` where none waits.
    ///
    /// # Errors
    /// Why none can be taken.
    pub fn accept(&self, place: Place) -> Result<Option<Client>, u32> {
        let Some(listener) = self.all.get(&place) else {
            return Ok(None);
        };
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
                return match errno {
                    Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => {
                        Err(number(errno))
                    }
                    _ => Ok(None),
                };
            }
        };
        let to = stream.local_addr();
        if stream.set_nonblocking(true).is_err() {
            return Ok(None);
        }
        Ok(to.ok().map(|to| Client {
            from: from_call(from),
            to: from_call(to),
            socket: stream.into(),
        }))
    }
}

fn open((port, six): Place) -> Result<TcpListener, Errno> {
    let family = if six {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&made, sockopt::ReuseAddr, &true)?;
    let at: SockaddrStorage = if six {
        setsockopt(&made, sockopt::Ipv6V6Only, &true)?;
        SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into()
    } else {
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into()
    };
    bind(made.as_raw_fd(), &at)?;
    listen(&made, Backlog::new(BACKLOG)?)?;
    Ok(made.into())
}
