//! What a request names. A number comes from a program, and means something only once it is the asker's: each type here is made by
//! that check and by nothing else, and what is done to listeners, links and regions of a request takes these.

use super::state::{CoreEngine, Refusal, narrow};
use crate::program::Estate;
use crate::quota::DAEMON;
use netchannel_abi::address::Address;
use netchannel_abi::program::RELAY;
use netchannel_service::memory;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A listener that the asker holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldListener(u32);

impl HeldListener {
    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A listener at the destination that was meant, which somebody alive holds and which listens there, as far as the asker may doubt it.
#[derive(Clone, Copy, Debug)]
pub struct Reachable(u32);

impl Reachable {
    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A connection of a link that came to a listener of the asker's: its memory, channel and anchor.
#[derive(Debug)]
pub struct PassedOn {
    link: u64,
    client: u32,
    user: u32,
    descriptors: Vec<OwnedFd>,
}

impl PassedOn {
    /// Number of the link, number of the client program, and its user.
    pub const fn words(&self) -> (u64, u32, u32) {
        (self.link, self.client, self.user)
    }

    /// What is passed on.
    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        self.descriptors
    }
}

/// A region that the asker uses.
#[derive(Debug)]
pub struct UsedEstate(Rc<Estate>);

impl UsedEstate {
    /// The region.
    pub fn into_estate(self) -> Rc<Estate> {
        self.0
    }
}

impl CoreEngine {
    /// The listener that `word` names, if program `number` holds it.
    pub(super) fn held_listener(&self, number: u32, word: u64) -> Result<HeldListener, Refusal> {
        let listener = narrow(word).map_err(|_| Errno::NOENT)?;
        let holds = self.program(number)?.listeners.contains(&listener);
        if holds && self.listeners.contains_key(&listener) {
            Ok(HeldListener(listener))
        } else {
            Err(Refusal::Errno(Errno::NOENT))
        }
    }

    /// The listener that `word` names, if `user` may be led to it now. A program that knew another daemon has its numbers: the listener
    /// must be at the destination that was meant. Words without a family name none.
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

    /// The region that `word` names, if program `number` uses it.
    pub(super) fn used_estate(&self, number: u32, word: u64) -> Result<UsedEstate, Refusal> {
        let program = self.program(number)?;
        let mut estates = program.estate.iter().chain(&program.inherited);
        let estate = estates.find(|one| one.number == word);
        Ok(UsedEstate(Rc::clone(estate.ok_or(Errno::NOENT)?)))
    }

    /// What a holder of a listener passes on: a connection of a link that was made to this listener, with the memory of that link. Of
    /// a link that this daemon does not know nothing can be proved: among programs of one user it is passed on all the same, with the
    /// client's user as the asker has `said` him. The harm would be that user's own.
    pub(super) fn passed_on(
        &self,
        number: u32,
        to: HeldListener,
        (link, said): (u64, u64),
        descriptors: Vec<OwnedFd>,
    ) -> Result<PassedOn, Refusal> {
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
        let (client, user) = match self.links.get(&link) {
            Some(known) => {
                // Those of the daemon itself lead to more than one listener.
                let here = known.listener == to.number() || known.client == RELAY;
                if !here || !memory::is_same(memory, &known.memory) {
                    return Err(refused);
                }
                (known.client, known.user)
            }
            None if self.is_of_one_user(to.number(), self.program(number)?.user) => {
                (0, u32::try_from(said).unwrap_or(DAEMON))
            }
            None => return Err(refused),
        };
        Ok(PassedOn {
            link,
            client,
            user,
            descriptors,
        })
    }
}

/// Whether a descriptor is a connected local socket: nothing else is passed on, least of all what would keep a program alive that is
/// gone.
fn is_connected(socket: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(kind)
        && sockopt::socket_acceptconn(socket) == Ok(false)
        && rustix::net::getpeername(socket).is_ok()
}
