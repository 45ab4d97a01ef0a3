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
    /// The numbers of those that are open, by address: for tenants, which see no numbers of this host.
    by_address: HashMap<[u64; 3], Vec<u32>>,
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
            by_address: HashMap::new(),
            former: VecDeque::new(),
            owners,
        }
    }

    /// The listener with this number.
    pub fn get(&self, number: u32) -> Option<&Listed> {
        self.listeners.get(&number)
    }

    /// The listener at an address; of several that share it one by the client's address.
    pub fn at(&self, server: &Address, client: &Address) -> Option<&Listed> {
        let numbers = self.by_address.get(&place(server))?;
        let spread = u64::from(client.port).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let chosen = spread.checked_rem(numbers.len() as u64)?;
        self.get(*numbers.get(usize::try_from(chosen).ok()?)?)
    }

    /// Adds a listener of a peer.
    pub fn add(&mut self, number: u32, listed: Listed) {
        let numbers = self.by_address.entry(place(&listed.address)).or_default();
        numbers.push(number);
        self.listeners.insert(number, listed);
    }

    /// A listener is closed, or its host is unreachable. A program that looked it up just before still connects to its
    /// host, perhaps over the next channel: only that host may refuse.
    pub fn remove(&mut self, number: u32, now: u64) {
        if let Some(listed) = self.listeners.get(&number) {
            let place = place(&listed.address);
            if let Some(numbers) = self.by_address.get_mut(&place) {
                numbers.retain(|one| *one != number);
                if numbers.is_empty() {
                    self.by_address.remove(&place);
                }
            }
        }
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
        let listeners = &self.listeners;
        self.by_address.retain(|_, numbers| {
            numbers.retain(|number| listeners.contains_key(number));
            !numbers.is_empty()
        });
    }

    /// Whether a program of the user may use this client address: the address must be one that the peer accepts as this
    /// host's, and the port must belong to the user. The peer trusts this host to check this.
    pub fn admits(&self, peer: &Peer, client: &Address, user: Option<u32>) -> bool {
        let owned = user.is_some_and(|user| self.owners.allows(client, user));
        owned && peer.rules().is_own(client)
    }
}

fn place(address: &Address) -> [u64; 3] {
    let plain = Address {
        scope: 0,
        ..address.unmapped()
    };
    plain.to_words()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can not go on fails")]
mod tests {
    use super::*;
    use crate::data_plane::peer::Terms;
    use crate::data_plane::rules::Rules;
    use netchannel_abi::directory;
    use netchannel_service::memory;

    fn listed(theirs: u32, last: u8) -> Listed {
        let terms = Terms {
            payload: 4096,
            own_payload: 4096,
            sockets: 1,
            peer_sockets: 1,
            silence: 1,
            peer_silence: 1,
        };
        Listed {
            peer: Peer::new(theirs, terms, Rules::default()),
            theirs,
            address: Address::v4([10, 0, 0, last], 80),
        }
    }

    #[test]
    fn an_address_leads_to_listeners_that_are_open() {
        let (_, region) = memory::published(c"directory", directory::SIZE).unwrap();
        let mut dialer = Dialer::new(PublishedPorts::new(Arc::new(region)));
        let (one, two, other) = (listed(1, 2), listed(2, 2), listed(3, 3));
        dialer.add(7, one.clone());
        dialer.add(8, two);
        dialer.add(9, other.clone());
        let server = Address::v4([10, 0, 0, 2], 80);
        let at = |dialer: &Dialer, server: &Address, port| {
            let found = dialer.at(server, &Address::v4([10, 88, 0, 2], port));
            found.map(|one| one.theirs)
        };
        let all: std::collections::BTreeSet<_> =
            (1..200).map(|port| at(&dialer, &server, port)).collect();
        assert_eq!(Vec::from_iter(all), [Some(1), Some(2)]);
        assert_eq!(at(&dialer, &server.mapped(), 5), at(&dialer, &server, 5));
        assert_eq!(at(&dialer, &Address { port: 81, ..server }, 5), None);
        // Who has looked its number up before still finds it.
        dialer.remove(8, 0);
        assert!((1..200).all(|port| at(&dialer, &server, port) == Some(1)));
        assert!(dialer.get(8).is_some());
        dialer.forget(&one.peer);
        assert_eq!(at(&dialer, &server, 5), None);
        assert_eq!(at(&dialer, &other.address, 5), Some(3));
        dialer.remove(9, 0);
        assert!(dialer.by_address.is_empty());
    }
}
