//! What the first worker knows of listeners of peers, to which programs of this host connect.

use super::commands::Listed;
use super::connection::Peer;
use netchannel_abi::address::Address;
use netchannel_service::published_ports::PublishedPorts;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How long a listener that is gone is remembered, in nanoseconds.
const FORMER: u64 = 2_000_000_000;
/// And how many are.
const MOST_FORMER: usize = 4096;

/// Listeners of peers.
#[derive(Debug)]
pub struct Dialer {
    /// By their number here.
    listeners: HashMap<u32, Listed>,
    /// Numbers of those that are gone, and since when, oldest first: a program may have seen one just before.
    former: VecDeque<(u64, u32)>,
    /// Ports that programs may name as theirs.
    owners: PublishedPorts,
}

impl Dialer {
    /// Without listeners.
    pub fn new(owners: PublishedPorts) -> Self {
        Self {
            listeners: HashMap::new(),
            former: VecDeque::new(),
            owners,
        }
    }

    /// A listener.
    pub fn get(&self, number: u32) -> Option<&Listed> {
        self.listeners.get(&number)
    }

    /// A listener of a peer has a number here.
    pub fn add(&mut self, number: u32, listed: Listed) {
        self.listeners.insert(number, listed);
    }

    /// It is gone, or its host is out of reach. Who connects to it as it was seen a moment ago asks its host, perhaps over the next
    /// channel: a refusal is for that to say.
    pub fn remove(&mut self, number: u32, now: u64) {
        self.former.push_back((now, number));
        while let Some((since, number)) = self.former.front().copied() {
            if now.saturating_sub(since) < FORMER && self.former.len() <= MOST_FORMER {
                break;
            }
            self.listeners.remove(&number);
            self.former.pop_front();
        }
    }

    /// A peer is no more.
    pub fn forget(&mut self, peer: &Arc<Peer>) {
        self.listeners
            .retain(|_, one| !Arc::ptr_eq(&one.peer, peer));
    }

    /// Whether a program of the user may say that it connects from there: from an address that the peer takes as this host's, and
    /// from a port of that user's. The peer believes this host.
    pub fn admits(&self, peer: &Peer, client: &Address, user: Option<u32>) -> bool {
        let owned = user.is_some_and(|user| self.owners.allows(client, user));
        owned && peer.rules().is_own(client)
    }
}
