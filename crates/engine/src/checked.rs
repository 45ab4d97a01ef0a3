//! Checked names in requests. A number in a request comes from a program, and is valid only if it belongs to that
//! program. Each type here is made only by that check, and operations on listeners, links and regions take these types.

use super::state::{CoreEngine, Refusal, narrow};
use crate::program::ProgramRegion;
use crate::quota::DAEMON;
use netchannel_abi::address::Address;
use netchannel_abi::program::RELAY;
use netchannel_abi::tenant::TenantAddresses;
use netchannel_service::memory;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A listener that the requesting program holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldListener(u32);

impl HeldListener {
    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A listener that covers the intended destination, has a living holder, and still listens there, as far as the
/// requesting program may doubt that.
#[derive(Clone, Copy, Debug)]
pub struct Reachable(u32);

impl Reachable {
    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A connection of a link that came to a listener of the requesting program: its memory, channel and anchor.
#[derive(Debug)]
pub struct HandedOver {
    link: u64,
    client: u32,
    user: u32,
    from: TenantAddresses,
    descriptors: Vec<OwnedFd>,
}

impl HandedOver {
    /// The number of the link, the number of the client program, and its user.
    pub const fn words(&self) -> (u64, u32, u32) {
        (self.link, self.client, self.user)
    }

    /// The addresses of the client's tenant, if it is another one.
    pub const fn from(&self) -> TenantAddresses {
        self.from
    }

    /// The descriptors that are passed on.
    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        self.descriptors
    }
}

/// A region that the requesting program uses.
#[derive(Debug)]
pub struct UsedRegion(Rc<ProgramRegion>);

impl UsedRegion {
    /// The region.
    pub fn into_region(self) -> Rc<ProgramRegion> {
        self.0
    }
}

impl CoreEngine {
    /// The listener `word`, if program `number` holds it.
    pub(super) fn held_listener(&self, number: u32, word: u64) -> Result<HeldListener, Refusal> {
        let listener = narrow(word).map_err(|_| Errno::NOENT)?;
        let holds = self.program(number)?.listeners.contains(&listener);
        if holds && self.listeners.contains_key(&listener) {
            Ok(HeldListener(listener))
        } else {
            Err(Refusal::Errno(Errno::NOENT))
        }
    }

    /// The listener `word`, if programs of `user` may connect to it now. A program may know numbers of a former daemon:
    /// so the listener must cover the intended destination. A destination without a family is not checked.
    pub(super) fn reachable(
        &mut self,
        user: u32,
        word: u64,
        meant: &Address,
    ) -> Result<Reachable, Refusal> {
        let refused = Refusal::Errno(Errno::CONNREFUSED);
        let Ok(listener) = u32::try_from(word) else {
            return Err(refused);
        };
        let known = self.listeners.get(&listener).ok_or(Errno::CONNREFUSED)?;
        let there = meant.family == 0 || known.is_at(meant);
        if !there || !self.is_living(listener) || !self.still_listens(listener, user) {
            return Err(refused);
        }
        Ok(Reachable(listener))
    }

    /// The region `word`, if program `number` uses it.
    pub(super) fn used_region(&self, number: u32, word: u64) -> Result<UsedRegion, Refusal> {
        let program = self.program(number)?;
        let mut regions = program.region.iter().chain(&program.inherited);
        let region = regions.find(|one| one.number == word);
        Ok(UsedRegion(Rc::clone(region.ok_or(Errno::NOENT)?)))
    }

    /// A connection that a holder of a listener passes on. The connection must belong to a link to this listener, and
    /// come with the memory of that link. For a link that this daemon does not know nothing can be proved. Among
    /// programs of one user it is passed on all the same, with the client's user as the program has claimed: only that
    /// user could be harmed.
    pub(super) fn handed_over(
        &self,
        number: u32,
        to: HeldListener,
        (link, claimed_user): (u64, u64),
        descriptors: Vec<OwnedFd>,
    ) -> Result<HandedOver, Refusal> {
        let [memory, channel, anchor] = &descriptors[..] else {
            return Err(Refusal::Fault("a Reoffer without a connection"));
        };
        let size = u64::try_from(self.limits.layout().size()).unwrap_or(0);
        if !is_connected(channel, SocketType::SEQPACKET)
            || !is_connected(anchor, SocketType::STREAM)
            || !memory::is_sealed(memory, size)
        {
            return Err(Refusal::Fault("a Reoffer without a connection"));
        }
        let refused = Refusal::Errno(Errno::PERM);
        let (client, user, from) = match self.links.get(&link) {
            Some(known) => {
                // Links of the daemon itself lead to more than one listener.
                let here = known.listener == to.number() || known.client == RELAY;
                if !here || !memory::is_same(memory, &known.memory) {
                    return Err(refused);
                }
                (known.client, known.user, known.from)
            }
            None if self.is_of_one_user(to.number(), self.program(number)?.user) => {
                let user = u32::try_from(claimed_user).unwrap_or(DAEMON);
                (0, user, TenantAddresses::default())
            }
            None => return Err(refused),
        };
        Ok(HandedOver {
            link,
            client,
            user,
            from,
            descriptors,
        })
    }
}

/// Whether a descriptor is a connected local socket. Nothing else is passed on, in particular no descriptor that would
/// keep a program alive that has ended.
pub(super) fn is_connected(socket: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(kind)
        && sockopt::socket_acceptconn(socket) == Ok(false)
        && rustix::net::getpeername(socket).is_ok()
}
