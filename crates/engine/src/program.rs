//! The daemon's state of a program.

use crate::ports::Block;
use crate::quota::Ticket;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The limit of regions of other programs, including forking parents, that a program may use.
const MOST_INHERITED: usize = 64;

/// The region of a program, with the ports and links that belong to it. Forked children go on using it: it lives as
/// long as one of them does.
#[derive(Debug)]
pub struct ProgramRegion {
    /// The number of the program for which it was made.
    pub program: u32,
    /// The user of that program.
    pub user: u32,
    /// The number of the region. A program gets another one after an exec.
    pub number: u64,
    /// The memory.
    pub memory: OwnedFd,
    /// The size of the memory in bytes.
    pub size: usize,
    /// The number of socket entries.
    pub entries: u32,
    /// Ports for virtual sockets, with their charges.
    pub ports: RefCell<Vec<(Block, Ticket)>>,
    /// The number of known links that the program made.
    pub links: Cell<usize>,
    /// Links that were requested since the region was last searched for unused ones.
    pub requested_since_search: Cell<usize>,
}

/// One attached program, or a connection that has not attached yet.
#[derive(Debug)]
pub struct Program {
    /// Its attach socket.
    pub socket: Rc<OwnedFd>,
    /// Its user: since Attach, the user who sent that message. Messages of other users over the same socket are
    /// refused.
    pub user: u32,
    /// The network namespace of its sockets where that may be any, by its cookie: of a program of a tenant. `None` where it is the
    /// daemon's.
    pub namespace: Option<u64>,
    /// The PID for display.
    pub process: u32,
    /// The name for display.
    pub name: String,
    /// Its own region, once attached.
    pub region: Option<Rc<ProgramRegion>>,
    /// Regions of its forking parents that it uses.
    pub inherited: Vec<Rc<ProgramRegion>>,
    /// Whether a parent announced it by `Adopt`.
    pub adopted: bool,
    /// The listeners that it holds.
    pub listeners: BTreeSet<u32>,
    /// Listeners that it held before an `exec` and has not announced since.
    pub unconfirmed: BTreeSet<u32>,
    /// The charge to its user, once it counts as a program.
    pub ticket: Option<Ticket>,
}

impl Program {
    /// A connection without a message. The user who made it only matters for the bound on such connections.
    #[must_use]
    pub fn new(socket: Rc<OwnedFd>, user: u32, process: u32) -> Self {
        Self {
            socket,
            user,
            namespace: None,
            process,
            name: String::new(),
            region: None,
            inherited: Vec::new(),
            adopted: false,
            listeners: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            ticket: None,
        }
    }

    /// A child that `self` is about to fork, which will also hold `listeners`.
    #[must_use]
    pub fn child(&self, socket: Rc<OwnedFd>, listeners: BTreeSet<u32>, ticket: Ticket) -> Self {
        let mut inherited = self.inherited.clone();
        inherited.extend(self.region.clone());
        if inherited.len() > MOST_INHERITED {
            inherited.remove(0);
        }
        Self {
            socket,
            user: self.user,
            namespace: self.namespace,
            process: 0,
            name: self.name.clone(),
            region: None,
            inherited,
            adopted: true,
            listeners,
            unconfirmed: BTreeSet::new(),
            ticket: Some(ticket),
        }
    }

    /// Records that it uses a socket of another program's region. Returns a region that it does not count as using any
    /// more.
    pub fn use_region(&mut self, region: Rc<ProgramRegion>) -> Option<Rc<ProgramRegion>> {
        if self.region.iter().any(|one| Rc::ptr_eq(one, &region)) {
            return Some(region);
        }
        self.inherited.retain(|one| !Rc::ptr_eq(one, &region));
        self.inherited.push(region);
        (self.inherited.len() > MOST_INHERITED).then(|| self.inherited.remove(0))
    }

    /// Whether it counts as a program, in contrast to a half-open connection.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.region.is_some() || self.adopted
    }

    /// Whether it is shown. A forked child that only has what its parent opened is not.
    pub fn is_shown(&self) -> bool {
        self.region.is_some() || self.adopted && !self.listeners.is_empty()
    }
}

/// Converts a name of at most 16 bytes in two words, for display.
#[must_use]
pub fn shown_name(words: [u64; 2]) -> String {
    let [low, high] = words.map(u64::to_le_bytes);
    let bytes: Vec<u8> = low.into_iter().chain(high).collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_to_be_shown() {
        let word = u64::from_le_bytes(*b"redis-se");
        let end = u64::from_le_bytes(*b"rver\0xyz");
        assert_eq!(shown_name([word, end]), "redis-server");
        assert_eq!(shown_name([0x1b, 0]), "?");
        assert_eq!(shown_name([0, 5]), "");
        assert_eq!(shown_name([u64::MAX, u64::MAX]).chars().count(), 16);
    }
}
