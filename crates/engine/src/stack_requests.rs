//! Requests of stack modules: links to listeners of this host, and single connections to be offered.

use super::link::Link;
use super::listener::Listener;
use super::state::{CoreEngine, Refusal, StackId};
use crate::limits::FIRST_ANCHORS;
use crate::quota::{Amounts, DAEMON, Kind, Ticket};
use netchannel_abi::address::Address;
use netchannel_abi::program::RELAY;
use netchannel_service::core_engine::{Command, Engine, StackRequest, WRONG_ADDRESS};
use netchannel_service::link::Parts;
use netchannel_service::neighbour::{Neighbour, Trusted};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

impl CoreEngine {
    /// Makes a link of a stack module to a listener.
    fn connect_stack(&mut self, listener: u32, destination: &Address) -> Result<Parts, Refusal> {
        let known = self.listeners.get(&listener).ok_or(Errno::CONNREFUSED)?;
        if !known.is_at(destination) {
            return Err(Refusal::Errno(WRONG_ADDRESS));
        }
        let reached = self.reachable(DAEMON, u64::from(listener), destination)?;
        let ticket = self.admit_own_link()?;
        let made = self.make_link(FIRST_ANCHORS)?;
        let (link, memory) = (made.number, Rc::clone(&made.memory));
        self.offer_link(reached, RELAY, DAEMON, made.server)?;
        self.note_own_link(link, listener, memory, ticket);
        Ok(made.client.parts(None)?)
    }

    /// Answers a request.
    pub fn answer(&mut self, request: StackRequest, asker: StackId) {
        let answer = match request {
            StackRequest::Forget(link) => {
                self.links.remove(&link);
                return;
            }
            StackRequest::Link(listener, destination) => {
                let made = self.connect_stack(listener, &destination);
                let mode = self.listeners.get(&listener).map(Listener::mode);
                let answer = made.map(|parts| (parts, mode.unwrap_or_default()));
                let answer = answer.map_err(errno);
                let gone = matches!(answer, Err(Errno::CONNREFUSED));
                let other = gone.then(|| self.other_listener(listener, &destination));
                match other.flatten() {
                    Some(to) => Command::ListenerReplaced { from: listener, to },
                    None => Command::Link(listener, answer),
                }
            }
            StackRequest::OfferLink(listener) => {
                Command::OfferLink(listener, self.make_offer_link(listener).map_err(errno))
            }
            StackRequest::Offer {
                ticket,
                listener,
                link,
                slot,
                anchor,
            } => {
                let answer = self.offer_one(listener, link, slot, anchor);
                Command::Offered(ticket, answer.map_err(errno))
            }
        };
        if let Some(stack) = self.stack(asker) {
            stack.send(answer);
        }
    }

    /// CoreEngine for a stack module in its turn.
    pub const fn for_stack(&mut self, stack: StackId) -> ForStack<'_> {
        ForStack { core: self, stack }
    }

    /// A link between two stack modules.
    fn make_own_link(&mut self) -> Result<[Parts; 2], Refusal> {
        let ticket = self.admit_own_link()?;
        let made = self.make_link(FIRST_ANCHORS)?;
        self.note_own_link(made.number, 0, made.memory, ticket);
        Ok([made.client.parts(None)?, made.server.parts(None)?])
    }

    pub(super) fn admit_own_link(&self) -> Result<Ticket, Refusal> {
        self.admit_descriptors(2)?;
        let amounts = Amounts::of(Kind::Links, 1).and(Kind::Descriptors, 2);
        Ok(self.quotas.charge(DAEMON, amounts)?)
    }

    fn note_own_link(&mut self, number: u64, listener: u32, memory: Rc<OwnedFd>, ticket: Ticket) {
        let link = Link {
            _ticket: Some(ticket),
            ..Link::new(RELAY, DAEMON, listener, memory)
        };
        self.note_link(number, link);
    }

    /// A link for connections of a module that are offered one by one, and the end of its channel that no program gets.
    fn make_offer_link(&mut self, listener: u32) -> Result<(Parts, OwnedFd), Refusal> {
        self.reachable(DAEMON, u64::from(listener), &Address::default())?;
        let ticket = self.admit_own_link()?;
        let made = self.make_link(0)?;
        self.note_own_link(made.number, listener, made.memory, ticket);
        Ok((made.client.parts(None)?, made.server.channel))
    }

    /// Offers one connection of a module to the process that accepts.
    fn offer_one(
        &mut self,
        listener: u32,
        link: u64,
        slot: u32,
        anchor: OwnedFd,
    ) -> Result<(), Refusal> {
        self.reachable(DAEMON, u64::from(listener), &Address::default())?;
        let known = self.links.get(&link).ok_or(Errno::CONNREFUSED)?;
        let memory = Rc::clone(&known.memory);
        let words = self.words_of_one(listener, (link, RELAY, DAEMON), (u64::from(slot), 0));
        // The memory takes the place of the channel: the accepting process keeps no channel.
        let offered = [Rc::clone(&memory), memory, Rc::new(anchor)];
        self.offer(listener, words, &offered)
    }

    /// Another listener at the address of a closed one: a member of its group, or a new one.
    fn other_listener(&self, gone: u32, destination: &Address) -> Option<u32> {
        let fits = |number: &u32, known: &Listener| *number != gone && known.is_at(destination);
        let found = self
            .listeners
            .iter()
            .filter(|(number, known)| fits(number, known));
        // An exact address precedes a wildcard.
        let best = found.min_by_key(|(_, known)| known.address.is_wildcard());
        let number = best.map(|(number, _)| *number)?;
        self.is_living(number).then_some(number)
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Errno(errno) => errno,
        Refusal::Fault(_) => Errno::CONNREFUSED,
    }
}

/// CoreEngine, as one stack module sees it.
#[derive(Debug)]
pub struct ForStack<'a> {
    core: &'a mut CoreEngine,
    stack: StackId,
}

impl Engine for ForStack<'_> {
    fn request(&mut self, request: StackRequest) {
        self.core.answer(request, self.stack);
    }

    fn own_link(&mut self) -> Result<[Parts; 2], Errno> {
        self.core.make_own_link().map_err(errno)
    }

    fn next_remote(&mut self) -> u32 {
        self.core.next_remote()
    }

    fn add_remote(&mut self, number: u32, address: &Address) -> Result<(), Errno> {
        self.core.add_remote(number, address, self.stack)
    }

    fn set_gateway(&mut self, number: u32) {
        self.core.set_gateway(number, self.stack);
    }

    fn remove_remote(&mut self, number: u32) {
        self.core.remove_remote(number);
    }

    fn trust(&mut self, own: Arc<Neighbour>, others: Vec<Trusted>) {
        self.core.trust(own, others);
    }

    fn look_at_neighbours(&mut self) {
        self.core.look_at_neighbours();
    }

    fn set_networks(&mut self, networks: Vec<(Address, u32, bool)>) {
        self.core.directory_mut().set_networks(networks);
    }
}
