//! The resources of each user, for `netchannel status`, and the bound on his memory.

use super::state::{CoreEngine, Refusal};
use crate::quota::{Kind, Quotas};
use netchannel_service::memory;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The resources of one user, and his bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserUse {
    /// The user.
    pub user: u32,
    /// The amount and bound of each of [`Kind::ALL`].
    pub kinds: [(usize, usize); Kind::ALL.len()],
    /// Bytes that his regions and links occupy.
    pub memory: u64,
    /// Bytes that they may occupy when more is requested.
    pub memory_bound: u64,
}

/// A user's memory is measured once per this many links, since that takes a system call for each link.
const LINKS_PER_MEASUREMENT: usize = 64;

impl CoreEngine {
    /// The charges of all users.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The resources of each user, whose regions and links occupy this much memory.
    #[must_use]
    pub fn uses(&self, memory: &BTreeMap<u32, u64>) -> Vec<UserUse> {
        let users = self.quotas.users().into_iter();
        users
            .map(|(user, kinds)| UserUse {
                user,
                kinds,
                memory: memory.get(&user).copied().unwrap_or(0),
                memory_bound: self.memory_bound,
            })
            .collect()
    }

    /// Each region and each link: its user, and the bytes that it occupies.
    fn occupied(&self) -> impl Iterator<Item = (u32, u64)> {
        let regions = self.programs.values().filter_map(|one| one.region.as_ref());
        let regions = regions.map(|one| (one.user, &one.memory));
        let links = self.links.values().map(|link| (link.user, &*link.memory));
        regions
            .chain(links)
            .map(|(user, memory)| (user, memory::occupied(memory)))
    }

    /// Whether a user may request more memory. Memory that he has already can be filled in any case.
    pub(super) fn admit_memory(&self, user: u32) -> Result<(), Refusal> {
        let links = self.quotas.use_of(user, Kind::Links);
        let programs = self.quotas.use_of(user, Kind::Programs);
        if (links + programs) % LINKS_PER_MEASUREMENT != LINKS_PER_MEASUREMENT - 1 {
            return Ok(());
        }
        let own = self.occupied().filter(|(owner, _)| *owner == user);
        let bytes: u64 = own.map(|(_, bytes)| bytes).sum();
        if bytes > self.memory_bound {
            return Err(Refusal::Errno(Errno::NOBUFS));
        }
        Ok(())
    }
}
