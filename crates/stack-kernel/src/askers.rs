//! Who asks name servers over datagrams: a program's end, and a socket of the kernel's for each server that it asks.

use crate::served::TenantNumber;
use netchannel_abi::address::Address;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Askers of one tenant: each has as many descriptors as it has [`PLACES`].
const MOST_OF_TENANT: usize = 256;
/// Of a worker: as many as there are names.
const MOST: u32 = 1 << 24;
/// Servers that one asks at a time: as many as the C library knows.
const SERVERS: u8 = 3;
/// Descriptors of an asker: its program's end, and its servers.
pub const ENDS: usize = 1 + SERVERS as usize;
/// Names of an asker.
const PLACES: u32 = 1 + SERVERS as u32;
/// A server that is asked.
#[derive(Debug)]
pub struct Server {
    /// As the program names it.
    pub asked: Address,
    /// Who answers.
    pub to: SocketAddr,
    /// Connected to it, so that the kernel takes datagrams of nobody else.
    pub socket: OwnedFd,
}

/// Who asks.
#[derive(Debug)]
pub struct Asker {
    /// The tenant of its program.
    pub tenant: TenantNumber,
    /// The other end of the program's.
    pub end: OwnedFd,
    servers: [Option<Server>; SERVERS as usize],
    next: u8,
}

impl Asker {
    /// The server that answers at this place.
    pub fn server(&self, place: u8) -> Option<&Server> {
        self.servers.get(usize::from(place))?.as_ref()
    }

    /// The server that the program names so, if it is known.
    pub fn known(&self, asked: &Address, to: SocketAddr) -> Option<&Server> {
        let mut servers = self.servers.iter().flatten();
        servers.find(|one| one.asked == *asked && one.to == to)
    }

    /// Another server, in the place of the oldest. Returns where it is.
    pub fn add(&mut self, server: Server) -> u8 {
        let place = self.next;
        self.next = (place + 1) % SERVERS;
        if let Some(old) = self.servers.get_mut(usize::from(place)) {
            *old = Some(server);
        }
        place
    }
}

/// All of a worker.
#[derive(Debug, Default)]
pub struct Askers {
    all: BTreeMap<u32, Asker>,
    next: u32,
}

impl Askers {
    /// Adds one. Returns its number; `None` where the tenant has as many as it may.
    pub fn add(&mut self, tenant: TenantNumber, end: OwnedFd) -> Option<u32> {
        if self.count(tenant) >= MOST_OF_TENANT {
            return None;
        }
        while self.all.contains_key(&self.next) {
            self.next = (self.next + 1) % MOST;
        }
        let asker = Asker {
            tenant,
            end,
            servers: [const { None }; SERVERS as usize],
            next: 0,
        };
        self.all.insert(self.next, asker);
        Some(self.next)
    }

    /// How many a tenant has.
    pub fn count(&self, tenant: TenantNumber) -> usize {
        let all = self.all.values();
        all.filter(|one| one.tenant == tenant).count()
    }

    /// One of them.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Asker> {
        self.all.get_mut(&number)
    }

    /// Takes one out.
    pub fn remove(&mut self, number: u32) -> Option<Asker> {
        self.all.remove(&number)
    }

    /// Takes out those of a tenant.
    pub fn remove_all(&mut self, tenant: TenantNumber) {
        self.all.retain(|_, one| one.tenant != tenant);
    }
}

/// The number of an asker's end: of its program's, or of a server's.
pub const fn number_of(asker: u32, server: Option<u8>) -> u32 {
    match server {
        Some(place) => asker * PLACES + 1 + place as u32,
        None => asker * PLACES,
    }
}

/// The asker of such a number, and the place of its server.
pub fn of_number(number: u32) -> (u32, Option<u8>) {
    let place = u8::try_from(number % PLACES).unwrap_or(0);
    (number / PLACES, place.checked_sub(1))
}

/// A socket that is connected to a server.
pub fn connect(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket)
}

/// The answer of who may not be asked: the question itself, refused (RFC 1035, 4.1.1). `None` for what is no question.
pub fn refusal(question: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const IS_ANSWER: u8 = 1 << 7;
    const REFUSED: u8 = 5;
    let mut answer = question.get(..HEADER).map(|_| question.to_vec())?;
    let flags = answer.get_mut(2..4)?;
    if flags[0] & IS_ANSWER != 0 {
        return None;
    }
    flags[0] |= IS_ANSWER;
    flags[1] = REFUSED;
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_abi::message::NAMES_PORT;

    fn end() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn numbers_name_ends() {
        for asker in [0, 1, MOST - 1] {
            for server in [None, Some(0), Some(SERVERS - 1)] {
                assert_eq!(of_number(number_of(asker, server)), (asker, server));
            }
        }
    }

    #[test]
    fn who_may_not_be_asked_refuses() {
        let question = [&[1, 2, 1, 0][..], &[9; 20]].concat();
        let answer = refusal(&question).unwrap();
        assert_eq!(&answer[..4], &[1, 2, 0x81, 5]);
        assert_eq!(&answer[4..], &question[4..]);
        assert_eq!(refusal(&answer), None);
        assert_eq!(refusal(&question[..11]), None);
    }

    #[test]
    fn a_tenant_has_no_more_than_its_share_and_an_asker_its_last_servers() {
        let mut askers = Askers::default();
        let first = askers.add(1, end()).unwrap();
        for _ in 1..MOST_OF_TENANT {
            assert!(askers.add(1, end()).is_some());
        }
        assert_eq!(askers.add(1, end()), None);
        assert!(askers.add(2, end()).is_some());
        let asker = askers.get_mut(first).unwrap();
        let to = "127.0.0.1:53".parse().unwrap();
        for number in 0..5 {
            let asked = Address::v4([10, 0, 0, number], NAMES_PORT);
            asker.add(Server {
                asked,
                to,
                socket: end(),
            });
        }
        let known = |number| asker.known(&Address::v4([10, 0, 0, number], NAMES_PORT), to);
        assert!(known(1).is_none() && known(2).is_some() && known(4).is_some());
        askers.remove_all(1);
        assert_eq!((askers.count(1), askers.count(2)), (0, 1));
    }
}
