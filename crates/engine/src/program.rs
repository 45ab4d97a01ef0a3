//! What the daemon knows of a program.

use crate::ports::Block;
use crate::quota::Ticket;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Regions of others, its forking parents' among them, that a program may use.
const MOST_INHERITED: usize = 64;

/// What a program was given and a forked child of it goes on using: it lives as long as one of
/// them does.
#[derive(Debug)]
pub struct Estate {
    /// Number of the program it was made for.
    pub program: u32,
    /// User of the program it was made for.
    pub user: u32,
    /// Number of the region: a program has another one after an exec.
    pub number: u64,
    /// The program's region.
    pub region: OwnedFd,
    /// Bytes of the region.
    pub size: usize,
    /// Sockets in the region.
    pub entries: u32,
    /// Ports it may give to virtual sockets, as they are charged to its user.
    pub ports: RefCell<Vec<(Block, Ticket)>>,
    /// Links the program made that are still known.
    pub links: Cell<usize>,
    /// Links it asked for since its region was last looked at for those that are used no more.
    pub unlooked: Cell<usize>,
}

/// One attached program, or a connection that has not attached yet.
#[derive(Debug)]
pub struct Program {
    /// Its attach socket.
    pub socket: Rc<OwnedFd>,
    /// Whose it is: since its Attach the user who sent that. What another user sends over the same socket is refused.
    pub user: u32,
    /// The network namespace of its sockets where that may be any, by its cookie: of a program of a tenant. `None` where it is the
    /// daemon's.
    pub namespace: Option<u64>,
    /// Process identifier as shown.
    pub process: u32,
    /// Name as shown.
    pub name: String,
    /// Its own region, once attached.
    pub estate: Option<Rc<Estate>>,
    /// What it uses of its forking parents.
    pub inherited: Vec<Rc<Estate>>,
    /// Whether a parent announced it by `Adopt`.
    pub adopted: bool,
    /// Listeners it holds.
    pub listeners: BTreeSet<u32>,
    /// Listeners it held before an `exec` and has not announced since.
    pub doubtful: BTreeSet<u32>,
    /// As it is charged to its user, once it counts as a program.
    pub ticket: Option<Ticket>,
}

impl Program {
    /// A connection that says nothing yet. By the user who made it, connections that never attach are bounded, and nothing else.
    #[must_use]
    pub fn new(socket: Rc<OwnedFd>, user: u32, process: u32) -> Self {
        Self {
            socket,
            user,
            namespace: None,
            process,
            name: String::new(),
            estate: None,
            inherited: Vec::new(),
            adopted: false,
            listeners: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            ticket: None,
        }
    }

    /// A child that `self` is about to fork, which will hold `listeners` too.
    #[must_use]
    pub fn child(&self, socket: Rc<OwnedFd>, listeners: BTreeSet<u32>, ticket: Ticket) -> Self {
        let mut inherited = self.inherited.clone();
        inherited.extend(self.estate.clone());
        if inherited.len() > MOST_INHERITED {
            inherited.remove(0);
        }
        Self {
            socket,
            user: self.user,
            namespace: self.namespace,
            process: 0,
            name: self.name.clone(),
            estate: None,
            inherited,
            adopted: true,
            listeners,
            doubtful: BTreeSet::new(),
            ticket: Some(ticket),
        }
    }

    /// It uses a socket of another program's region. Returns what it is taken to use no longer.
    pub fn use_estate(&mut self, estate: Rc<Estate>) -> Option<Rc<Estate>> {
        if self.estate.iter().any(|one| Rc::ptr_eq(one, &estate)) {
            return Some(estate);
        }
        self.inherited.retain(|one| !Rc::ptr_eq(one, &estate));
        self.inherited.push(estate);
        (self.inherited.len() > MOST_INHERITED).then(|| self.inherited.remove(0))
    }

    /// Whether it counts as a program rather than a half-open connection.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.estate.is_some() || self.adopted
    }

    /// Whether there is anything to show of it: not of a forked child that has only what its parent opened.
    pub fn is_shown(&self) -> bool {
        self.estate.is_some() || self.adopted && !self.listeners.is_empty()
    }
}

/// A name of at most 16 bytes in two words, made fit to be shown.
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
