//! Programs' own resolvers (c-ares, Java's, `dig`): they ask name servers over UDP, of which a tenant has none. A UDP socket that sends
//! to port 53, where the kernel leads nowhere, becomes one end of a pair of packet sockets, with the same number. The stack of the
//! tenant has the other end, so that epoll, a fork and an exec need no help of the library.
//!
//! ```text
//!  send, connect --to port 53, unreachable--> become: the daemon's pair takes the socket's place
//!  send --server's address, question--> pair <==> stack --UDP--> resolver     receive: the address of the server, and the answer
//! ```
//!
//! Everything else of UDP fails there as on a host without a network.

mod becoming;
mod kernel_servers;
mod transfer;

use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, sockaddr, socklen_t};
use netchannel_abi::address::{Address, INET6};
use netchannel_abi::message::NAMES_PORT;

use crate::descriptors::{attach, confinement, gateway, names};
use crate::ground::lock::Lock;
use crate::ground::{process, real, sys};

use transfer::HEAD;
pub use transfer::{receive, send};

/// A socket that asks name servers.
#[derive(Clone, Copy, PartialEq)]
pub struct Asker {
    /// The file that the number names: another one that the number names later is none of ours.
    identity: (u64, u64),
    family: c_int,
    /// The name that it had as a UDP socket.
    local: Address,
    /// The server to which it is connected.
    peer: Option<Address>,
}

/// Those of this process, by number.
static ASKERS: Lock<Vec<(c_int, Asker)>> = Lock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    ASKERS.reset();
}

/// Whether any socket asks.
#[inline]
pub fn any() -> bool {
    // Relaxed: a thread that uses the number of one has heard of it.
    COUNT.load(Ordering::Relaxed) > 0
}

/// The socket at this number, if it asks.
#[inline]
pub fn at(fd: c_int) -> Option<Asker> {
    any().then(|| find(fd)).flatten()
}

#[cold]
fn find(fd: c_int) -> Option<Asker> {
    let mut askers = ASKERS.lock()?;
    let (_, asker) = *askers.iter().find(|(number, _)| *number == fd)?;
    if sys::file::identity(fd) == Some(asker.identity) {
        return Some(asker);
    }
    if !process::is_vfork_child() {
        askers.retain(|(number, _)| *number != fd);
        COUNT.store(askers.len(), Ordering::Relaxed);
    }
    None
}

fn note(fd: c_int, asker: Asker) {
    if let Some(mut askers) = ASKERS.lock() {
        askers.retain(|(number, _)| *number != fd);
        askers.push((fd, asker));
        COUNT.store(askers.len(), Ordering::Relaxed);
    }
}

/// Notes that `to` has become a duplicate of `from`.
pub fn duplicated(from: c_int, to: c_int) {
    if let Some(asker) = at(from) {
        note(to, asker);
    }
}

/// A number is about to be closed.
pub fn closed(fd: c_int) {
    if any()
        && !process::is_vfork_child()
        && let Some(mut askers) = ASKERS.lock()
    {
        askers.retain(|(number, _)| *number != fd);
        COUNT.store(askers.len(), Ordering::Relaxed);
    }
}

/// As `connect`, for what is no socket of the library.
///
/// # Safety
/// As the C function.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if let Some(mut asker) = at(fd) {
        // SAFETY: the program's address.
        let (to, is_none) = unsafe {
            (
                names::read(address, length),
                names::is_unspecified(address, length),
            )
        };
        asker.peer = match to.filter(|to| to.port == NAMES_PORT) {
            None if !is_none => return real::fail(libc::ENETUNREACH),
            to => to.map(|to| asker.as_named(to)),
        };
        note(fd, asker);
        return 0;
    }
    // SAFETY: the program's arguments.
    let result = unsafe { real::connect(fd, address, length) };
    // SAFETY: the same.
    let Some(to) = (unsafe { unserved(fd, (address, length), result as isize) }) else {
        return result;
    };
    let error = real::errno();
    match becoming::become_asker(fd, (result == 0).then_some(to)) {
        Ok(mut asker) => {
            asker.peer = Some(asker.as_named(to));
            note(fd, asker);
            0
        }
        Err(_) if result == 0 => 0,
        Err(_) => real::fail(error),
    }
}

/// The server for which a datagram socket asks the stack from now on: the kernel, whose `result` it is, leads to it nowhere.
///
/// # Safety
/// The program gave the address to be read.
#[inline]
unsafe fn unserved(
    fd: c_int,
    (address, length): (*const sockaddr, socklen_t),
    result: isize,
) -> Option<Address> {
    let is_short = (length as usize) < size_of::<libc::sockaddr_in>();
    if is_short || address.is_null() || !may_lead_nowhere(result) {
        return None;
    }
    // SAFETY: the kernel has read so many bytes there.
    let inet = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    // Both families have the port in the same place.
    if inet.sin_port != NAMES_PORT.to_be() || !is_internet(inet.sin_family.into()) {
        return None;
    }
    let error = real::errno();
    // SAFETY: the same.
    let to = unsafe { names::read(address, length) }.filter(|to| is_left_to_stack(fd, to, result));
    real::set_errno(error);
    to
}

fn is_internet(family: c_int) -> bool {
    family == libc::AF_INET || family == libc::AF_INET6
}

/// Whether the kernel, whose `result` of a call it is, took the address and perhaps leads to it nowhere.
pub fn may_lead_nowhere(result: isize) -> bool {
    result >= 0 || leads_nowhere(real::errno())
}

fn leads_nowhere(error: c_int) -> bool {
    let errors = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENETDOWN,
        libc::EADDRNOTAVAIL,
    ];
    errors.contains(&error)
}

#[cold]
fn is_left_to_stack(fd: c_int, to: &Address, result: isize) -> bool {
    let option = |name| sys::option(fd, libc::SOL_SOCKET, name);
    if option(libc::SO_PROTOCOL) != Ok(libc::IPPROTO_UDP)
        || process::is_vfork_child()
        // What follows needs calls that a filter may forbid.
        || confinement::is_filtered()
    {
        return false;
    }
    // The kernel leads to addresses of the namespace itself, whether anybody is there or not.
    let is_own = || {
        let own = attach::current()
            .and_then(|attachment| gateway::source_address(attachment, &to.unmapped()));
        is_here(to) || own.is_some_and(|own| own.bytes == to.unmapped().bytes)
    };
    (result < 0 || is_own())
        && crate::is_ready()
        && attach::ensure().is_some()
        && gateway::is_used()
        // Last: it reads the kernel's list.
        && (result < 0 || !kernel_servers::serves(to, kernel_servers::UDP))
}

/// Where a TCP connection to a name server goes, as for an answer that does not fit into a datagram: from a server of loopback that
/// there is not, or of a family that the tenant has not, to that of the tenant's own address.
pub fn over_tcp(to: Address) -> Address {
    let may_ask = to.port == NAMES_PORT && gateway::is_used() && !confinement::is_filtered();
    let Some(attachment) = attach::current().filter(|_| may_ask) else {
        return to;
    };
    let of_family = |family: Address| gateway::source_address(attachment, &family);
    let (v4, v6) = (Address::v4([0; 4], 0), Address::v6([0; 16], 0, 0));
    let same = of_family(to.unmapped());
    let is_left = match is_here(&to) {
        true => !kernel_servers::serves(&to, kernel_servers::TCP),
        false => same.is_none(),
    };
    let own = same.or_else(|| of_family(v4)).or_else(|| of_family(v6));
    let own = own.map(|own| Address {
        port: to.port,
        ..own
    });
    // A socket shows addresses of its own family.
    let own = own.map(|own| {
        if to.family == INET6 {
            own.mapped()
        } else {
            own
        }
    });
    own.filter(|own| is_left && own.family == to.family)
        .unwrap_or(to)
}

/// Whether the kernel takes an address for the namespace itself, whatever addresses that has.
fn is_here(to: &Address) -> bool {
    to.is_loopback() || to.unmapped().is_wildcard()
}

impl Asker {
    /// An address as a socket of its family shows it.
    fn as_named(&self, address: Address) -> Address {
        if self.family == libc::AF_INET6 {
            address.mapped()
        } else {
            address
        }
    }

    /// The name of the socket.
    pub fn own_name(&self) -> Address {
        /// Where the ports of a host without other settings begin, and how many there are.
        const PORTS: (u16, u64) = (32768, 28232);
        let Some(peer) = self.peer else {
            return self.local;
        };
        let to = peer.unmapped();
        let source =
            attach::current().and_then(|attachment| gateway::source_address(attachment, &to));
        let source = match source {
            _ if is_here(&to) => Address::loopback(to.family == INET6, 0),
            source => source.unwrap_or(self.local),
        };
        let own = if self.local.is_wildcard() {
            self.as_named(source)
        } else {
            self.local
        };
        let any = PORTS.0 + u16::try_from(self.identity.1 % PORTS.1).unwrap_or(0);
        let port = if self.local.port == 0 {
            any
        } else {
            self.local.port
        };
        Address { port, ..own }
    }

    /// The server to which it is connected.
    pub const fn peer(&self) -> Option<Address> {
        self.peer
    }

    /// What `SO_DOMAIN` and its like say of it; `None` where the pair says the same.
    pub const fn option(&self, level: c_int, name: c_int) -> Option<c_int> {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => Some(libc::SOCK_DGRAM),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(self.family),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(libc::IPPROTO_UDP),
            (libc::SOL_SOCKET, _) => None,
            _ => Some(0),
        }
    }
}

/// The socket that has sent to an address with `result`, where the stack is to have that, as the kernel leads nowhere.
///
/// # Safety
/// The kernel has read the address.
#[inline]
pub unsafe fn taker(
    fd: c_int,
    address: (*const sockaddr, socklen_t),
    result: isize,
) -> Option<Asker> {
    // SAFETY: the caller's promise.
    unsafe { unserved(fd, address, result)? };
    let error = real::errno();
    let asker = becoming::become_asker(fd, None);
    real::set_errno(error);
    asker.inspect(|asker| note(fd, *asker)).ok()
}

/// How long a datagram is of which so many bytes wait.
pub fn without_head(waiting: c_int) -> c_int {
    waiting
        .saturating_sub(c_int::try_from(HEAD).unwrap_or(0))
        .max(0)
}
