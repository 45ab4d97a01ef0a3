//! The resources of each user, as `netchannel status` shows them.

use super::Daemon;
use netchannel_control::types::{Share, User};
use netchannel_engine::UserUse;
use std::collections::BTreeMap;

impl Daemon {
    /// All users with resources, or `only` one. Their regions and links occupy this much memory.
    pub(super) fn users(&self, only: Option<u32>, memory: &BTreeMap<u32, u64>) -> Vec<User> {
        let mut users = self.core.uses(memory);
        users.retain(|one| only.is_none_or(|user| one.user == user));
        let bound = self.options.limits.half_open_per_user;
        users
            .iter()
            .map(|one| shown(one, share((self.half_open.of(one.user), bound))))
            .collect()
    }
}

fn shown(one: &UserUse, half_open: Share) -> User {
    let [
        programs,
        listeners,
        links,
        deposits,
        ports,
        descriptors,
        in_flight,
    ] = one.kinds.map(share);
    User {
        user: one.user,
        programs,
        listeners,
        links,
        deposits,
        ports,
        descriptors,
        in_flight,
        half_open,
        memory: Share {
            used: one.memory,
            bound: one.memory_bound,
        },
    }
}

fn share((used, bound): (usize, usize)) -> Share {
    Share {
        used: used as u64,
        bound: bound as u64,
    }
}
