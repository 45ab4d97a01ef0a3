//! What CoreEngine knows of tenants that its own trusts: what they show, and what is shown to them.

use crate::quota::Ticket;
use netchannel_abi::address::Address;
use netchannel_service::neighbour::{Neighbour, Offers, OpenListener, Trusted};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A listener of another tenant, at one of its addresses.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whose it is.
    pub tenant: Trusted,
    /// The number that the other CoreEngine gave it.
    pub listener: u32,
    /// As it is shown.
    pub open: OpenListener,
    /// That address, with its port.
    pub address: Address,
}

impl Entry {
    /// Whether it is the same listener, as it was shown before.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tenant.shows, &other.tenant.shows)
            && (self.listener, self.address) == (other.listener, other.address)
            && self.open == other.open
    }
}

/// What CoreEngine knows of them.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// What this tenant shows, if any other trusts it.
    pub own: Option<Arc<Neighbour>>,
    /// Those that it trusts, and that trust it.
    pub others: Vec<Trusted>,
    /// Their listeners, by the numbers that these have here.
    pub entries: BTreeMap<u32, Entry>,
    /// The accept channels that are shown.
    pub channels: HashMap<u32, (Arc<Offers>, Ticket)>,
    /// Listeners of this tenant, or those who hold them, have changed.
    pub changed: bool,
}

impl Neighbours {
    /// The entry of a number.
    pub fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(&number)
    }
}
