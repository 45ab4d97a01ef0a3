//! The user whose programs may give a port to virtual sockets: a word for each port in the directory, which only the
//! daemon writes. CoreEngine sets the words. The threads of stack modules read them, as programs do.

use netchannel_abi::address::Address;
use netchannel_abi::directory::{PORTS, PORTS_OFFSET, is_owned, owner_word};
use netchannel_shm::Region;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The owners of all ports.
#[derive(Clone, Debug)]
pub struct PublishedPorts(Arc<Region>);

impl PublishedPorts {
    /// The owners in a directory's memory.
    #[must_use]
    pub const fn new(directory: Arc<Region>) -> Self {
        Self(directory)
    }

    fn word(&self, port: u16) -> Option<&AtomicU64> {
        let words: &[AtomicU64] = self.0.slice(PORTS_OFFSET, PORTS)?;
        words.get(usize::from(port))
    }

    /// Sets the owner of a port: `owner_word` of a user and `place_word` of the place, 0 for none.
    pub fn set(&self, port: u16, owner: u64) {
        if let Some(word) = self.word(port) {
            // Release: a program that connects learned of the port after this store.
            word.store(owner, Ordering::Release);
        }
    }

    /// Whether programs of a user may use this source address.
    #[must_use]
    pub fn allows(&self, from: &Address, user: u32) -> bool {
        let word = self
            .word(from.port)
            .map_or(0, |word| word.load(Ordering::Acquire));
        from.port != 0 && is_owned(word, owner_word(user), from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use netchannel_abi::directory::SIZE;

    #[test]
    fn a_port_is_its_users_only() {
        let (_memory, region) = memory::published(c"test", SIZE).unwrap();
        let owners = PublishedPorts::new(Arc::new(region));
        let at = |port| Address::v4([127, 0, 0, 1], port);
        let word = |user| u64::from(owner_word(user));
        assert!(!owners.allows(&at(10_000), 0) && !owners.allows(&at(10_000), u32::MAX));
        owners.set(10_000, word(0));
        owners.set(u16::MAX, word(1001));
        owners.set(0, word(1001));
        assert!(owners.allows(&at(10_000), 0) && !owners.allows(&at(10_000), 1001));
        assert!(owners.allows(&at(u16::MAX), 1001) && !owners.allows(&at(0), 1001));
        owners.set(10_000, 0);
        assert!(!owners.allows(&at(10_000), 0));
    }
}
