//! What this host announces to a peer: its listeners and addresses, as frames for one channel at a time.

use super::output::LineId;
use netchannel_abi::address::{Address, INET6};
pub use netchannel_service::core_engine::OwnListener;
use netchannel_wire::announce::Announcer;
use netchannel_wire::{Frame, HEADER, Listen, MOST_CONTROL_PAYLOAD, Unlisten, encode_addresses};
use std::collections::{BTreeMap, BTreeSet};

/// Whether another host could reach a listener.
fn is_reachable(listener: &OwnListener) -> bool {
    let address = listener.address.unmapped();
    address.is_wildcard() || is_advertised(&address)
}

/// Whether an address means something on another host.
fn is_advertised(address: &Address) -> bool {
    let link_local = address.family == INET6
        && matches!(address.bytes, [0xfe, second, ..] if second & 0xc0 == 0x80);
    !address.is_loopback() && !link_local
}

/// What is said to one start of a peer.
#[derive(Debug, Default)]
pub struct Advertised {
    announcer: Announcer,
    listeners: BTreeSet<u32>,
    /// The channel on which it goes.
    pub line: Option<LineId>,
}

/// This host.
#[derive(Debug, Default)]
pub struct Own {
    /// Listeners by number.
    pub listeners: BTreeMap<u32, OwnListener>,
    /// Addresses besides loopback.
    pub addresses: Vec<Address>,
    /// Most listeners that a peer is told of.
    pub most: usize,
}

impl Advertised {
    /// How many listeners the peer was told of.
    pub fn count(&self) -> usize {
        self.listeners.len()
    }

    /// A full list, to begin with on another channel.
    pub fn list(&mut self, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.announcer.begin_list();
        self.addresses(own, &mut bytes);
        let reachable = own.listeners.iter().filter(|(_, one)| is_reachable(one));
        let told: Vec<_> = reachable.take(own.most).collect();
        self.listeners = told.iter().map(|(number, _)| **number).collect();
        for (number, listener) in told {
            self.say_listener(*number, listener, &mut bytes);
        }
        let end = self.announcer.end_list();
        push(&Frame::ListenEnd(end), &mut bytes);
        bytes
    }

    /// A listener has come.
    pub fn listen(&mut self, number: u32, listener: &OwnListener, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        if is_reachable(listener)
            && self.listeners.len() < own.most
            && self.listeners.insert(number)
        {
            self.say_listener(number, listener, &mut bytes);
        }
        bytes
    }

    /// A listener is gone. One that there was no room for takes its place.
    pub fn unlisten(&mut self, number: u32, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.listeners.remove(&number) {
            return bytes;
        }
        let unlisten = Unlisten {
            serial: self.announcer.next_serial(),
            listener: number,
        };
        push(&Frame::Unlisten(unlisten), &mut bytes);
        let untold = own.listeners.iter();
        let mut untold = untold.filter(|(one, _)| !self.listeners.contains(one));
        // Nothing is untold but at the limit.
        let next = (self.listeners.len() + 1 == own.most)
            .then(|| untold.find(|(_, listener)| is_reachable(listener)))
            .flatten();
        if let Some((number, listener)) = next {
            self.listeners.insert(*number);
            self.say_listener(*number, listener, &mut bytes);
        }
        bytes
    }

    /// The addresses of this host have changed.
    pub fn readdress(&mut self, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.addresses(own, &mut bytes);
        bytes
    }

    fn addresses(&mut self, own: &Own, bytes: &mut Vec<u8>) {
        let told = own.addresses.iter().copied().filter(is_advertised);
        let told: Vec<Address> = told.collect();
        let mut frame = [0; HEADER + MOST_CONTROL_PAYLOAD];
        let serial = self.announcer.next_serial();
        if let Ok(length) = encode_addresses(serial, &told, &mut frame) {
            bytes.extend_from_slice(frame.get(..length).unwrap_or_default());
        }
    }

    fn say_listener(&mut self, number: u32, listener: &OwnListener, bytes: &mut Vec<u8>) {
        let listen = Listen {
            serial: self.announcer.next_serial(),
            listener: number,
            address: Address {
                scope: 0,
                ..listener.address
            },
            v6_only: listener.v6_only,
        };
        push(&Frame::Listen(listen), bytes);
    }
}

fn push(frame: &Frame<'_>, bytes: &mut Vec<u8>) {
    let mut room = [0; netchannel_wire::MOST_FIXED_FRAME];
    if let Ok(length) = frame.encode(&mut room) {
        bytes.extend_from_slice(room.get(..length).unwrap_or_default());
    }
}
