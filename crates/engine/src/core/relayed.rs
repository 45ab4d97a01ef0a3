//! What the relay asks: links to listeners of this host, and single connections to be offered.

use super::{CoreEngine, Listener, Refusal};
use crate::hosts;
use crate::limits::FIRST_ANCHORS;
use crate::relay::{self, Ask, Command, Parts, Relay};
use netchannel_abi::address::Address;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Who leads connections to listeners of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The relay, those of programs of this host.
    Relay,
    /// The data plane, those of other hosts.
    Hosts,
}

impl CoreEngine {
    /// The relay wants to lead connections to a listener.
    fn connect_relay(&mut self, listener: u32, destination: &Address) -> Result<Parts, Refusal> {
        let [a, b, c] = destination.to_words();
        let mut words = [0; 14];
        words[..4].copy_from_slice(&[u64::from(listener), a, b, c]);
        self.admit_destination(listener, &words)?;
        self.admit_living(listener)?;
        self.admit_descriptors(1)?;
        let made = self.make_link(FIRST_ANCHORS)?;
        let (link, memory) = (made.number, Rc::clone(&made.memory));
        self.offer_link(listener, relay::PROGRAM, made.server)?;
        self.note_link(link, relay::PROGRAM, listener, memory);
        made.client.parts()
    }

    /// Answers what the relay asks.
    pub fn on_relay(&mut self) {
        let asks = self.relay.as_ref().map(Relay::take_asks);
        for ask in asks.into_iter().flatten() {
            self.answer(ask, Asker::Relay);
        }
    }

    /// Answers one question.
    pub fn answer(&mut self, ask: Ask, asker: Asker) {
        let answer = match ask {
            Ask::Forget(link) => {
                self.links.remove(&link);
                return;
            }
            Ask::Link(listener, destination) => {
                let made = self.connect_relay(listener, &destination);
                let manner = self.listeners.get(&listener).map(Listener::manner);
                let answer = made.map(|parts| (parts, manner.unwrap_or_default()));
                let answer = answer.map_err(errno);
                let gone = matches!(answer, Err(Errno::CONNREFUSED));
                let other = gone.then(|| self.other_listener(listener, &destination));
                match other.flatten() {
                    Some(to) => Command::Moved { from: listener, to },
                    None => Command::Link(listener, answer),
                }
            }
            Ask::Float(listener) => Command::Float(listener, self.float(listener).map_err(errno)),
            Ask::Offer {
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
        match (asker, &self.hosts) {
            (Asker::Relay, _) => self.tell_relay(answer),
            (Asker::Hosts, Some(hosts)) => hosts.tell(hosts::Command::Relay(answer)),
            (Asker::Hosts, None) => {}
        }
    }

    /// A link for connections of the relay that are offered one by one, and the end of its channel
    /// that no program gets.
    fn float(&mut self, listener: u32) -> Result<(Parts, OwnedFd), Refusal> {
        self.admit_living(listener)?;
        self.admit_descriptors(1)?;
        let made = self.make_link(0)?;
        self.note_link(made.number, relay::PROGRAM, listener, made.memory);
        Ok((made.client.parts()?, made.server.channel))
    }

    /// Offers one connection of the relay to whoever accepts.
    fn offer_one(
        &mut self,
        listener: u32,
        link: u64,
        slot: u32,
        anchor: OwnedFd,
    ) -> Result<(), Refusal> {
        self.admit_living(listener)?;
        let known = self.links.get(&link).ok_or(Errno::CONNREFUSED)?;
        let memory = Rc::clone(&known.memory);
        let words = self.words_of_one(listener, link, relay::PROGRAM, u64::from(slot));
        // In place of a channel comes the memory again: whoever takes it keeps none.
        let offered = [Rc::clone(&memory), memory, Rc::new(anchor)];
        self.offer(listener, words, &offered)
    }

    /// Another listener at the address of one that is gone: of a group, or made meanwhile.
    fn other_listener(&self, gone: u32, destination: &Address) -> Option<u32> {
        let fits = |number: &u32, known: &Listener| *number != gone && known.is_at(destination);
        let found = self
            .listeners
            .iter()
            .filter(|(number, known)| fits(number, known));
        // An exact address before any.
        let best = found.min_by_key(|(_, known)| known.address.is_wildcard());
        let number = best.map(|(number, _)| *number)?;
        self.admit_living(number).is_ok().then_some(number)
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Errno(errno) => errno,
        Refusal::Fault(_) => Errno::CONNREFUSED,
    }
}
