//! Whether listeners still listen. A program may close its TCP socket by a raw system call and keep the accept channel;
//! another program that then listens there would lose its clients to it. So the kernel is asked when a listener is
//! announced, before each new link from a program of another user, when another listener is announced at its port, and
//! once a second while such a link lasts. Programs of the holder's own user are not protected from each other.

use super::exposed::AGAIN;
use super::link::Link;
use super::state::{CoreEngine, Refusal};
use crate::diagnosis::{self, Claim};
use netchannel_abi::address::Address;
use netchannel_service::addresses::shown as shown_address;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The `candidates` to which a link leads from a user who is not the only one among its holders.
fn exposed<'a>(
    candidates: &BTreeSet<u32>,
    links: impl Iterator<Item = &'a Link>,
    is_of_one_user: impl Fn(u32, u32) -> bool,
) -> BTreeSet<u32> {
    let mut asked: HashMap<(u32, u32), bool> = HashMap::new();
    let mut is_own = |listener, user| {
        let known = asked.entry((listener, user));
        *known.or_insert_with(|| is_of_one_user(listener, user))
    };
    links
        .filter(|link| candidates.contains(&link.listener))
        .filter(|link| !is_own(link.listener, link.user))
        .map(|link| link.listener)
        .collect()
}

impl CoreEngine {
    /// Program `number`, which announces a listener, proves it: by the socket, or by having made one that the kernel knows. A program
    /// of a tenant has to show the socket: its namespace may be one of which the kernel tells the daemon nothing.
    pub(super) fn prove(
        &self,
        number: u32,
        address: &Address,
        cookie: u64,
        socket: Option<&OwnedFd>,
    ) -> Result<(), Refusal> {
        let program = self.program(number)?;
        let (user, home) = (program.user, program.namespace);
        let claim = Claim {
            address: *address,
            cookie,
            user: Some(user),
        };
        let proved = match socket {
            Some(socket) => diagnosis::is_shown_by(&claim, socket, home),
            None if home.is_some() => false,
            None => diagnosis::is_true(&claim)
                .inspect_err(silent)
                .unwrap_or(false),
        };
        if proved {
            Ok(())
        } else {
            Err(Refusal::Errno(Errno::PERM))
        }
    }

    /// Whether a listener and all its holders are of `user`.
    pub(super) fn is_of_one_user(&self, listener: u32, user: u32) -> bool {
        let is_own = |holder: &u32| {
            self.programs
                .get(holder)
                .is_some_and(|one| one.user == user)
        };
        let known = self.listeners.get(&listener);
        known.is_some_and(|known| known.user == user && known.holders.iter().all(is_own))
    }

    /// The user of all holders of a listener, if it is the same one.
    pub(super) fn user_of_all(&self, listener: u32) -> Option<u32> {
        let user = self.listeners.get(&listener)?.user;
        self.is_of_one_user(listener, user).then_some(user)
    }

    /// Whether a program of `user` may connect to a listener. A listener that has closed is dropped.
    pub(super) fn still_listens(&mut self, listener: u32, user: u32) -> bool {
        self.is_of_one_user(listener, user) || self.prove_again(&BTreeSet::from([listener]))
    }

    /// A listener is announced: proves the others at the same port, so that no closed one is in its way. This includes
    /// listeners of the same program: the kernel's socket closes first, and its port is free before the message
    /// arrives.
    pub(super) fn prove_others_at(&mut self, port: u16) {
        let others = self.listeners.iter();
        let others = others.filter(|(_, known)| known.address.port == port);
        let others = others.map(|(number, _)| *number).collect();
        self.prove_again(&others);
    }

    /// Asks the kernel for all of these at once, and drops those that listen no more. Returns whether all of them do, as far as is
    /// known. Those of a tenant are believed: the kernel tells nothing of another namespace, and programs of one tenant are not protected
    /// from each other.
    pub(super) fn prove_again(&mut self, listeners: &BTreeSet<u32>) -> bool {
        if self.tenant {
            return listeners.iter().all(|one| self.listeners.contains_key(one));
        }
        let known = listeners.iter();
        let claims: Vec<(u32, Claim)> = known
            .filter_map(|number| {
                let known = self.listeners.get(number)?;
                let claim = Claim {
                    address: known.address,
                    cookie: known.cookie,
                    user: None,
                };
                Some((*number, claim))
            })
            .collect();
        if claims.is_empty() {
            return listeners.is_empty();
        }
        let asked: Vec<Claim> = claims.iter().map(|(_, claim)| *claim).collect();
        let Ok(answers) = diagnosis::are_true(&asked).inspect_err(silent) else {
            return false;
        };
        let mut all = claims.len() == listeners.len();
        for ((number, claim), proved) in claims.into_iter().zip(answers) {
            if !proved {
                tracing::debug!(
                    listener = number,
                    address = shown_address(&claim.address),
                    "has stopped to listen without a word"
                );
                self.drop_listener(number);
                all = false;
            }
        }
        all
    }

    /// A link to `listener` was made for a program of `user`, or a program of that user holds it too.
    pub(super) fn note_exposed(&mut self, listener: u32, user: u32) {
        if !self.is_of_one_user(listener, user) {
            self.exposed.add(listener);
        }
    }

    /// Proves listeners that nobody holds when that is due. Returns the time of the next call.
    pub fn prove_unheld(&mut self, now: Instant) -> Option<Instant> {
        let (due, over) = self.unheld.due(now);
        for listener in over {
            self.drop_listener(listener);
        }
        if !due.is_empty() {
            self.prove_again(&due.into_iter().collect());
        }
        self.unheld.next()
    }

    /// Proves exposed listeners when that is due. Returns the time of the next call.
    pub fn prove_exposed(&mut self, now: Instant) -> Option<Instant> {
        if self.exposed.is_due(now)? {
            let candidates = std::mem::take(&mut self.exposed.listeners);
            let links = self.links.values();
            let left = exposed(&candidates, links, |listener, user| {
                self.is_of_one_user(listener, user)
            });
            self.prove_again(&left);
            self.exposed.listeners = left;
            self.exposed.due = Some(now + AGAIN);
        }
        self.exposed.due
    }
}

fn silent(error: &Errno) {
    tracing::warn!("the kernel does not tell who listens where ({error})");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn link(listener: u32, user: u32) -> Link {
        let memory = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Link::new(1, user, listener, Rc::new(memory))
    }

    #[test]
    fn only_links_between_users_expose_a_listener() {
        let links = [link(1, 1000), link(2, 1001), link(3, 1001), link(2, 1001)];
        // Each is held by the user 1000, the third by 1001 too.
        let holders = |listener, user| listener != 3 && user == 1000;
        let all = BTreeSet::from([1, 2, 3, 4]);
        let found = exposed(&all, links.iter(), holders);
        assert_eq!(found, BTreeSet::from([2, 3]));
        let some = BTreeSet::from([1, 3]);
        assert_eq!(exposed(&some, links.iter(), holders), BTreeSet::from([3]));
    }
}
