//! What each user has of what the daemon gives, for `netchannel status`, and the bound on his memory.

use super::state::{CoreEngine, Refusal};
use crate::quota::{Kind, Quotas};
use netchannel_service::memory;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// What one user has, and how much he may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserUse {
    /// The user.
    pub user: u32,
    /// Use and bound of each of [`Kind::ALL`].
    pub kinds: [(usize, usize); Kind::ALL.len()],
    /// Bytes that his regions and links really occupy.
    pub memory: u64,
    /// Bytes that they may occupy when he asks for more.
    pub memory_bound: u64,
}

/// Every so many links a user's memory is looked at: each look is a system call for each link.
const LINKS_A_LOOK: usize = 64;

impl CoreEngine {
    /// What is charged to whom.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Each user who has something, where their regions and links occupy so much memory.
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

    /// Each region and each link: whose it is, and the bytes that it occupies.
    fn occupied(&self) -> impl Iterator<Item = (u32, u64)> {
        let estates = self.programs.values().filter_map(|one| one.estate.as_ref());
        let regions = estates.map(|one| (one.user, &one.region));
        let links = self.links.values().map(|link| (link.user, &*link.memory));
        regions
            .chain(links)
            .map(|(user, memory)| (user, memory::occupied(memory)))
    }

    /// Whether a user's memory leaves room for more. What is given already can be filled whatever is said here.
    pub(super) fn admit_memory(&self, user: u32) -> Result<(), Refusal> {
        let links = self.quotas.use_of(user, Kind::Links);
        let programs = self.quotas.use_of(user, Kind::Programs);
        if (links + programs) % LINKS_A_LOOK != LINKS_A_LOOK - 1 {
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
