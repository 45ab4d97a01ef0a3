//! The first worker's table of peers' listeners, to which programs of this host connect.

use super::commands::Listed;
use super::connection::Peer;
use netchannel_abi::address::Address;
use netchannel_service::published_ports::PublishedPorts;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How long a closed listener is remembered, in nanoseconds.
const FORMER: u64 = 2_000_000_000;
/// How many closed listeners are remembered.
const MOST_FORMER: usize = 4096;

/// Listeners of peers.
#[derive(Debug)]
pub struct Dialer {
    /// By their number on this host.
    listeners: HashMap<u32, Listed>,
    /// The numbers of closed listeners and when they were closed, oldest first. A program may have looked one up just
    /// before.
    former: VecDeque<(u64, u32)>,
    /// The ports that programs may use as source ports.
    owners: PublishedPorts,
}

impl Dialer {
    /// A table without listeners.
    pub fn new(owners: PublishedPorts) -> Self {
        Self {
            listeners: HashMap::new(),
            former: VecDeque::new(),
            owners,
        }
    }

    /// The listener with this number.
    pub fn get(&self, number: u32) -> Option<&Listed> {
        self.listeners.get(&number)
    }

    /// Adds a listener of a peer.
    pub fn add(&mut self, number: u32, listed: Listed) {
        self.listeners.insert(number, listed);
    }

    /// A listener is closed, or its host is unreachable. A program that looked it up just before still connects to its
    /// host, perhaps over the next channel: only that host may refuse.
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

    /// A start of a peer has ended.
    pub fn forget(&mut self, peer: &Arc<Peer>) {
        self.listeners
            .retain(|_, one| !Arc::ptr_eq(&one.peer, peer));
    }

    /// Whether a program of the user may use this client address: the address must be one that the peer accepts as this
    /// host's, and the port must belong to the user. The peer trusts this host to check this.
    pub fn admits(&self, peer: &Peer, client: &Address, user: Option<u32>) -> bool {
        let owned = user.is_some_and(|user| self.owners.allows(client, user));
        owned && peer.rules().is_own(client)
    }
}
