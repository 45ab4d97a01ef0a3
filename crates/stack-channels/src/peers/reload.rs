//! A change of the configuration.

use super::acceptors::CannotListen;
use super::output::Output;
use super::peer::{CLASSES, ChannelSlot, Peer};
use super::service::Peers;
use super::settings::{PeerSettings, Settings};
use crate::class::from_wire;
use netchannel_wire::{Class, GoAwayReason};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

impl Peers {
    /// Applies new settings. Peers whose settings did not change notice nothing. The limits that HELLO announces stay
    /// the same until the daemon is restarted.
    ///
    /// # Errors
    /// An address at which the host can not listen. All else is done.
    pub fn apply(&mut self, settings: Settings, now: Instant) -> Result<(), CannotListen> {
        let wanted = |peer: &Peer| {
            let mut peers = settings.peers.iter();
            peers.any(|settings| settings.name == peer.settings.name)
        };
        let gone = self.peers.iter().filter(|(_, peer)| !wanted(peer));
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove_peer(number, now);
        }
        let mut settings = settings;
        self.own.most = settings.limits.listeners;
        let peers = std::mem::take(&mut settings.peers);
        self.settings = settings;
        let mut before: BTreeMap<String, u32> = BTreeMap::new();
        for (number, peer) in &self.peers {
            before.insert(peer.settings.name.clone(), *number);
        }
        for peer in peers {
            match before.get(&peer.name) {
                Some(number) => self.change_peer(*number, peer, now),
                None => {
                    self.last_peer += 1;
                    self.peers.insert(self.last_peer, Peer::new(peer));
                }
            }
        }
        let options = self.options(Class::Throughput, None);
        let (listen, transport) = (&self.settings.listen, &*self.transport);
        self.acceptors
            .set(listen, transport, &options, self.table.poll())
    }

    fn remove_peer(&mut self, number: u32, now: Instant) {
        for name in self.table.of_peer(number) {
            self.table.remove(name);
        }
        self.retire_all(number, now);
        self.end_start(number, now);
        self.peers.remove(&number);
    }

    fn change_peer(&mut self, number: u32, settings: PeerSettings, now: Instant) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let same_key = Arc::ptr_eq(&peer.settings.key, &settings.key);
        let same_addresses = peer.settings.addresses == settings.addresses;
        let same_channels = peer.settings.channels == settings.channels;
        peer.settings = settings;
        if !same_addresses {
            peer.turn = 0;
            peer.backoff.succeed();
        }
        if let Some(start) = &mut peer.start {
            start.learned.review(&peer.settings, &self.own.addresses);
        }
        if !same_key {
            // Open channels go on, so that hosts can get the key one after the other. Channels that are being made need
            // the new key.
            for name in self.table.of_peer(number) {
                self.table.remove(name);
            }
            if let Some(peer) = self.peers.get_mut(&number) {
                for class in CLASSES {
                    for slot in peer.slots.get_mut(from_wire(class)) {
                        *slot = ChannelSlot {
                            up: slot.up,
                            ..ChannelSlot::default()
                        };
                    }
                }
                peer.backoff.succeed();
            }
        }
        if !same_channels {
            self.change_channels(number, now);
        }
    }

    fn change_channels(&mut self, number: u32, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&number) {
            for class in CLASSES {
                let bounds = *peer.settings.channels.get(from_wire(class));
                let wanted = peer.wanted.get_mut(from_wire(class));
                *wanted = (*wanted).max(bounds.least).min(bounds.most);
            }
        }
        self.retire_beyond(number, GoAwayReason::Retired, now);
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        for class in CLASSES {
            let most = usize::from(peer.settings.channels.get(from_wire(class)).most);
            let slots = peer.slots.get_mut(from_wire(class));
            for slot in slots.iter().skip(most) {
                if let Some(dial) = slot.dial {
                    self.table.remove(dial);
                }
            }
            slots.resize_with(most, ChannelSlot::default);
        }
    }

    fn retire_all(&mut self, number: u32, now: Instant) {
        let Some(peer) = self.peers.get(&number) else {
            return;
        };
        for up in peer.up().collect::<Vec<_>>() {
            let reason = GoAwayReason::Retired;
            self.outputs.push(Output::Retire(up.channel, reason));
            self.vacate_slot(number, &up.channel, now, "its configuration has changed");
        }
    }
}
