//! Published ports: sockets of the host at which connections for the tenant come in. A door is bound as long as the port is
//! published, and open only while a program of the tenant listens: until then a client is refused, as by a host on which nobody listens.
//! While a door is shut, the kernel gives its port to a program of the host that asks for it with `SO_REUSEADDR`, as servers do: without
//! that option on the door, a daemon that is started again would not get its own port. It is told when the door is to be opened.

use netchannel_abi::address::{Address, INET};
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::addresses;
use netchannel_service::core_engine::OwnListener;
use netchannel_shm::kernel_socket;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// As many as the kernel lets wait by default.
const BACKLOG: i32 = 4096;

/// A port that is published.
#[derive(Debug)]
pub struct Door {
    publish: Publish,
    /// Where the connections lead.
    server: Address,
    socket: OwnedFd,
    open: bool,
    /// Seconds within which a client is to have said something before the kernel gives it out.
    defers: u32,
    /// Whether CoreEngine was told that clients may come in over channels.
    is_told: bool,
}

/// What is to be done about a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was opened: it is to be watched.
    Opened,
    /// It was shut.
    Shut,
    /// It stays as it is.
    None,
}

/// Takes a port.
///
/// # Errors
/// Why the kernel does not give it.
pub fn bind(publish: &Publish) -> Result<OwnedFd, Errno> {
    let host = publish.host;
    let family = match host {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Whether the program that accepts a connection reads urgent bytes apart is known later: until then none is lost.
    sockopt::set_socket_oobinline(&socket, true)?;
    if host.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &host)?;
    Ok(socket)
}

impl Door {
    /// A port whose socket was bound.
    ///
    /// # Errors
    /// `AFNOSUPPORT` where the tenant has no address of its family.
    pub fn new(publish: Publish, socket: OwnedFd, tenant: &Tenant) -> Result<Self, Errno> {
        let own = tenant.address_like(publish.host.ip());
        let own = own.ok_or(Errno::AFNOSUPPORT)?;
        let server = addresses::from_socket_address(SocketAddr::new(own, publish.port));
        // A former stack may have left it open.
        let open = sockopt::socket_acceptconn(&socket)?;
        Ok(Self {
            publish,
            server,
            socket,
            open,
            // What a former process has set is not known.
            defers: if open { u32::MAX } else { 0 },
            is_told: false,
        })
    }

    /// What it publishes.
    pub const fn publish(&self) -> Publish {
        self.publish
    }

    /// Where its connections lead.
    pub const fn server(&self) -> Address {
        self.server
    }

    /// The socket to be watched.
    pub const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether clients are taken.
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether a client that connects there comes in here.
    pub fn is_at(&self, to: SocketAddr) -> bool {
        let host = self.publish.host;
        let is_any = host.ip().is_unspecified() && host.is_ipv4() == to.is_ipv4();
        self.open && host.port() == to.port() && (is_any || host.ip() == to.ip())
    }

    /// The listener to which a client's connection leads.
    pub fn listener<'a>(
        &self,
        listeners: impl Iterator<Item = (&'a u32, &'a OwnListener)>,
        client: &Address,
    ) -> Option<(u32, &'a OwnListener)> {
        listener(listeners, &self.server, client)
    }

    /// Clients are given out once they have said something, within as many seconds.
    pub fn set_defers(&mut self, defers: u32) {
        if std::mem::replace(&mut self.defers, defers) != defers {
            kernel_socket::set_defer_accept(&self.socket, defers);
        }
    }

    /// Whether clients may come in over channels, if that has changed: the kernel alone defers them.
    pub fn news(&mut self) -> Option<bool> {
        let may_enter = self.open && self.defers == 0;
        (std::mem::replace(&mut self.is_told, may_enter) != may_enter).then_some(may_enter)
    }

    /// Opens it while the tenant `listens`, and shuts it otherwise. What waits behind a door that is shut is reset.
    ///
    /// # Errors
    /// The errno of `listen`: another socket of the host listens at that very port.
    pub fn set_open(&mut self, listens: bool) -> Result<Change, Errno> {
        if listens == self.open {
            return Ok(Change::None);
        }
        if listens {
            rustix::net::listen(&self.socket, BACKLOG)?;
        } else {
            // The kernel keeps the port: it was bound by its number.
            rustix::net::shutdown(&self.socket, Shutdown::Both)?;
        }
        self.open = listens;
        Ok(if listens {
            Change::Opened
        } else {
            Change::Shut
        })
    }

    /// The next client, and where it comes from.
    ///
    /// # Errors
    /// `AGAIN` where none waits, and those of `accept`.
    pub fn accept(&self) -> Result<(OwnedFd, Address), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, from) = rustix::net::acceptfrom_with(&self.socket, flags)?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let from = from.ok_or(Errno::CONNABORTED)?;
        Ok((socket, addresses::from_socket_address(from)))
    }
}

/// The listener to which a client's connection to an address of the tenant leads: one at the very address before one at any, and of
/// several that share a port (`SO_REUSEPORT`) one by the client's address.
pub fn listener<'a>(
    listeners: impl Iterator<Item = (&'a u32, &'a OwnListener)>,
    server: &Address,
    client: &Address,
) -> Option<(u32, &'a OwnListener)> {
    let is_v4 = server.unmapped().family == INET;
    let takes =
        |one: &OwnListener| addresses::covers(&one.address, server) && !(one.v6_only && is_v4);
    let mut found: Vec<_> = listeners.filter(|(_, one)| takes(one)).collect();
    let specific = found.iter().any(|(_, one)| !one.address.is_wildcard());
    found.retain(|(_, one)| one.address.is_wildcard() != specific);
    let spread = u64::from(client.port).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let chosen = spread.checked_rem(found.len() as u64)?;
    let (number, one) = found.get(usize::try_from(chosen).ok()?)?;
    Some((**number, one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn tenant() -> Tenant {
        Tenant::new("web", vec![[10, 88, 0, 2].into()])
    }

    fn door() -> (Door, SocketAddr) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = port.local_addr().unwrap();
        drop(port);
        let publish = Publish { host, port: 80 };
        let door = Door::new(publish, bind(&publish).unwrap(), &tenant()).unwrap();
        (door, host)
    }

    #[test]
    fn a_door_refuses_until_it_is_open_and_keeps_its_port() {
        let (mut door, host) = door();
        assert!(TcpStream::connect(host).is_err());
        for _ in 0..2 {
            assert_eq!(door.set_open(true), Ok(Change::Opened));
            assert_eq!(door.set_open(true), Ok(Change::None));
            let client = TcpStream::connect(host).unwrap();
            let (_, from) = door.accept().unwrap();
            assert_eq!(from.port, client.local_addr().unwrap().port());
            assert_eq!(door.accept().unwrap_err(), Errno::AGAIN);
            assert_eq!(door.set_open(false), Ok(Change::Shut));
            assert!(TcpStream::connect(host).is_err());
            assert_eq!(bind_exclusively(host), Err(Errno::ADDRINUSE));
        }
    }

    /// Binds as a program does that shares its port with nobody.
    fn bind_exclusively(at: SocketAddr) -> Result<(), Errno> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &at)
    }

    #[test]
    fn a_port_that_is_taken_is_not_published() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = other.local_addr().unwrap();
        assert_eq!(
            bind(&Publish { host, port: 80 }).unwrap_err(),
            Errno::ADDRINUSE
        );
    }

    #[test]
    fn it_leads_to_who_listens_at_the_tenants_port() {
        let (door, _) = door();
        let at = |address: Address, v6_only| OwnListener {
            address,
            v6_only,
            defers: 0,
        };
        let leads_from = |all: &[(u32, OwnListener)], port| {
            let client = Address::v4([10, 0, 0, 9], port);
            let all = all.iter().map(|(number, one)| (number, one));
            door.listener(all, &client).map(|(number, _)| number)
        };
        let leads = |all: &[(u32, OwnListener)]| leads_from(all, 40_000);
        let any = at(Address::v4([0; 4], 80), false);
        let own = at(Address::v4([10, 88, 0, 2], 80), false);
        let both = at(Address::v6([0; 16], 80, 0), false);
        assert_eq!(leads(&[(1, any), (2, own)]), Some(2));
        assert_eq!(leads(&[(3, both)]), Some(3));
        // Of those that share the port each gets some.
        let group = [(4, any), (5, any), (6, both)];
        let led = (1..=100).filter_map(|port| leads_from(&group, port));
        let led: Vec<_> = led.collect();
        for member in [4, 5, 6] {
            let share = led.iter().filter(|one| **one == member).count();
            assert!(share > 10, "{member}: {share}");
        }
        for other in [
            at(Address::v4([0; 4], 81), false),
            at(Address::v4([127, 0, 0, 1], 80), false),
            at(Address::v6([0; 16], 80, 0), true),
        ] {
            assert_eq!(leads(&[(1, other)]), None, "{other:?}");
        }
    }
}
