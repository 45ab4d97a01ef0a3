//! The announcements of this host to a peer: its listeners and addresses, as frames for one channel at a time.

use super::output::ChannelInstance;
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

/// Whether an address has a meaning on another host.
fn is_advertised(address: &Address) -> bool {
    let link_local = address.family == INET6
        && matches!(address.bytes, [0xfe, second, ..] if second & 0xc0 == 0x80);
    !address.is_loopback() && !link_local
}

/// What was announced to one start of a peer.
#[derive(Debug, Default)]
pub struct Advertised {
    announcer: Announcer,
    listeners: BTreeSet<u32>,
    /// The channel that carries the announcements.
    pub channel: Option<ChannelInstance>,
}

/// The addresses and listeners of this host.
#[derive(Debug, Default)]
pub struct Own {
    /// Listeners by number.
    pub listeners: BTreeMap<u32, OwnListener>,
    /// Addresses besides loopback.
    pub addresses: Vec<Address>,
    /// The limit of listeners that are announced to a peer.
    pub most: usize,
}

impl Advertised {
    /// The number of listeners that were announced.
    pub fn count(&self) -> usize {
        self.listeners.len()
    }

    /// The full list, at the beginning and on another channel.
    pub fn list(&mut self, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.announcer.begin_list();
        self.addresses(own, &mut bytes);
        let reachable = own.listeners.iter().filter(|(_, one)| is_reachable(one));
        let announced: Vec<_> = reachable.take(own.most).collect();
        self.listeners = announced.iter().map(|(number, _)| **number).collect();
        for (number, listener) in announced {
            self.push_listener(*number, listener, &mut bytes);
        }
        let end = self.announcer.end_list();
        push(&Frame::ListenEnd(end), &mut bytes);
        bytes
    }

    /// Announces a new listener.
    pub fn listen(&mut self, number: u32, listener: &OwnListener, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        if is_reachable(listener)
            && self.listeners.len() < own.most
            && self.listeners.insert(number)
        {
            self.push_listener(number, listener, &mut bytes);
        }
        bytes
    }

    /// Announces that a listener is closed. A listener that was beyond the limit takes its place.
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
        let unannounced = own.listeners.iter();
        let mut unannounced = unannounced.filter(|(one, _)| !self.listeners.contains(one));
        // Listeners are left out only at the limit.
        let next = (self.listeners.len() + 1 == own.most)
            .then(|| unannounced.find(|(_, listener)| is_reachable(listener)))
            .flatten();
        if let Some((number, listener)) = next {
            self.listeners.insert(*number);
            self.push_listener(*number, listener, &mut bytes);
        }
        bytes
    }

    /// Announces the changed addresses of this host.
    pub fn announce_addresses(&mut self, own: &Own) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.addresses(own, &mut bytes);
        bytes
    }

    fn addresses(&mut self, own: &Own, bytes: &mut Vec<u8>) {
        let announced = own.addresses.iter().copied().filter(is_advertised);
        let announced: Vec<Address> = announced.collect();
        let mut frame = [0; HEADER + MOST_CONTROL_PAYLOAD];
        let serial = self.announcer.next_serial();
        if let Ok(length) = encode_addresses(serial, &announced, &mut frame) {
            bytes.extend_from_slice(frame.get(..length).unwrap_or_default());
        }
    }

    fn push_listener(&mut self, number: u32, listener: &OwnListener, bytes: &mut Vec<u8>) {
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
