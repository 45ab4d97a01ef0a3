//! A process that becomes another user's. Before the call returns it shares no writable memory with relatives of its
//! former user: its entries move to a region of its own, links are left, connections continue through a pump
//! ([`crate::processes::pump_hand_over`]), and the process attaches to the daemon anew, as the new user, with its
//! listeners.
//!
//! ```text
//!  before the call:  pump for connections; pending connections are left for other holders
//!  the call
//!  after it:         entries copied to new memory, at the same addresses; every other shared mapping replaced by
//!                    zeros; another Attach; listeners announced with their socket
//! ```
//!
//! A process whose region no other process ever had keeps the region and its connections, and attaches anew.

use netchannel_abi::program;
use netchannel_abi::reason::Reason;
use netchannel_shm::Region;

use crate::descriptors::credentials::{self, Users};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, copying, ports};
use crate::ground::{gate, mappings, process, sys};
use crate::processes::pump_hand_over::{self, HandOver};
use crate::processes::{in_transit, peer_libraries};
use crate::sockets::listener::daemon_renewal;
use crate::sockets::{foreign, link, listener, owner_table, socket};
use crate::waiting::epoll;

/// A call that changes users, and the users if it succeeds.
pub enum Change {
    /// `setuid`.
    All(u32),
    /// `seteuid`.
    Effective(u32),
    /// `setreuid`.
    Two(u32, u32),
    /// `setresuid`.
    Three(u32, u32, u32),
}

/// An argument that leaves a user as it is.
const SAME: u32 = u32::MAX;

impl Change {
    /// The users after the call. `setuid` is taken to change all three, as it does for a process that may.
    const fn of(&self, before: Users) -> Users {
        let [real, effective, saved] = before;
        const fn or(wanted: u32, before: u32) -> u32 {
            if wanted == SAME { before } else { wanted }
        }
        match *self {
            Self::All(user) => [user, user, user],
            Self::Effective(user) => [real, or(user, effective), saved],
            Self::Two(a, b) => {
                let (new_real, new_effective) = (or(a, real), or(b, effective));
                let sets = a != SAME || b != SAME && new_effective != real;
                [
                    new_real,
                    new_effective,
                    if sets { new_effective } else { saved },
                ]
            }
            Self::Three(a, b, c) => [or(a, real), or(b, effective), or(c, saved)],
        }
    }
}

/// Makes a call that changes users, while there is no copy worker.
pub fn change<R>(change: &Change, call: impl FnOnce() -> R) -> R {
    copying::without_helpers(|| {
        // A child that runs in its parent's memory, as between vfork and exec, must not touch it.
        if attach::current().is_none() || sys::process() != process::number() {
            return call();
        }
        let before = credentials::current();
        let shared = credentials::is_shared();
        let handover = (shared && credentials::differs_from_owner(change.of(before))).then(|| {
            listener::hand_on_to_next();
            pump_hand_over::prepare()
        });
        let result = call();
        let errno = crate::ground::real::errno();
        if credentials::differs_from_owner(credentials::current()) {
            complete_change(handover, shared);
        } else if let Some(handover) = handover {
            handover.undo();
        }
        crate::ground::real::set_errno(errno);
        result
    })
}

fn complete_change(handover: Option<HandOver>, shared: bool) {
    let mut memory = None;
    if shared {
        let handover = handover.unwrap_or_else(HandOver::none);
        let kept = handover.complete();
        memory = Some(leave_region().unwrap_or(-1));
        for one in &kept {
            one.publish(Reason::UserChanged);
        }
    }
    credentials::note_owner();
    // The former user's ports do not belong to the new one, and the other ends of links know the former user.
    ports::forget();
    listener::end_client_links();
    peer_libraries::reset_in_child();
    attach::begin_anew(memory);
    if !shared {
        // Over the same socket: the daemon drops the former user of the region before it is shown the region.
        return announce_listeners();
    }
    // Over another socket, so that listeners without other holders, and their pending connections, are held all the
    // time.
    let former = attach::detach_control();
    announce_listeners();
    if attach::restore_control(former) {
        // None could be made, as behind `chroot`.
        announce_listeners();
    }
    listener::keep_queues_if_announced();
}

fn announce_listeners() {
    let mut any = false;
    table::for_each(|_, word| any |= word.kind() == Kind::Listener);
    attach::daemon_is_gone();
    if any {
        daemon_renewal::follow();
    }
}

/// Copies the entries that this process holds to a region of its own. Returns the memory's descriptor, if it could be
/// made; otherwise the process continues with private memory that no daemon sees.
fn leave_region() -> Option<i32> {
    let own = attach::current()?;
    // Meanwhile no thread changes which sockets the descriptors name.
    gate::before_fork();
    let used = pump_hand_over::used_entries();
    let size = program::size(own.entries);
    let made = Region::create(c"netchannel-program", size).ok();
    let made = made.and_then(|(fd, region)| {
        socket::copy_into(&region, &used)?;
        Some((attach::make_internal(fd), region))
    });
    owner_table::leave(&used);
    in_transit::drop_all();
    link::leave_all();
    listener::leave_links();
    let memory = made.and_then(|(fd, region)| match region.take_place_of(own.region) {
        Ok(()) => Some(fd),
        Err(_) => {
            attach::close_internal(fd);
            None
        }
    });
    if memory.is_none() {
        own.region.vacate();
    }
    mappings::leave_all(own.region);
    foreign::leave_all();
    epoll::make_boards_private();
    owner_table::initialise();
    used.iter()
        .for_each(|entry| owner_table::note(*entry, true));
    gate::in_parent();
    memory
}

#[cfg(test)]
mod tests {
    use super::{Change, SAME};

    #[test]
    fn what_calls_make_of_users() {
        let root = [0, 0, 0];
        assert_eq!(Change::All(33).of(root), [33, 33, 33]);
        assert_eq!(Change::Effective(33).of(root), [0, 33, 0]);
        assert_eq!(Change::Two(33, 33).of(root), [33, 33, 33]);
        assert_eq!(Change::Two(SAME, 33).of(root), [0, 33, 33]);
        assert_eq!(Change::Two(SAME, 0).of([0, 33, 33]), [0, 0, 33]);
        assert_eq!(Change::Two(33, SAME).of(root), [33, 0, 0]);
        assert_eq!(Change::Three(SAME, 33, SAME).of(root), [0, 33, 0]);
        assert_eq!(Change::Three(33, 33, 33).of(root), [33, 33, 33]);
    }
}
