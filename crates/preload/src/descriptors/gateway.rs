//! The stack of a tenant: programs of a tenant have no network of their own, and the daemon leads their connections to
//! a stack.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::directory::Header;

use crate::descriptors::attach::{self, Attachment};

/// The listener for every destination that has no other entry in the directory. `None` where the kernel connects there.
pub fn listener(attachment: &Attachment) -> Option<u32> {
    let header: &Header = attachment.directory.at(0)?;
    // Relaxed: the daemon stores the word before any program attaches.
    match header.gateway.load(Ordering::Relaxed) {
        0 => None,
        gateway => Some(gateway),
    }
}

/// Whether this program belongs to a tenant.
pub fn is_used() -> bool {
    attach::current().is_some_and(|attachment| listener(attachment).is_some())
}

/// The address of the tenant from which a connection to `to` starts; without a port.
pub fn source_address(attachment: &Attachment, to: &Address) -> Option<Address> {
    let header: &Header = attachment.directory.at(0)?;
    // Acquire: the addresses that the count speaks of are complete.
    let count = header.locals.load(Ordering::Acquire) as usize;
    let mut own = header.local.iter().take(count).map(|local| local.load());
    own.find(|local| local.family == to.family)
}
