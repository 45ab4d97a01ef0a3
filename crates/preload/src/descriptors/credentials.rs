//! The user who owns the region, and the users of the process.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use netchannel_trust::in_user_namespace;

use crate::ground::sys;

/// See [`are_renumbered`]: 0 where it is not known yet. Determined once: later a filter of system calls may forbid it.
static RENUMBERED: AtomicU32 = AtomicU32::new(0);
/// The user who owns the region.
static USER: AtomicU32 = AtomicU32::new(0);
/// The same user as the daemon has told his number.
static AT_DAEMON: AtomicU32 = AtomicU32::new(u32::MAX);
/// Whether other processes may map the region, or this process has mapped another one's.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Real, effective and saved user.
pub type Users = [u32; 3];

/// The present users of the process.
pub fn current() -> Users {
    let mut users: Users = [0; 3];
    let [real, effective, saved] = &mut users;
    // SAFETY: the kernel writes the three words of `users`.
    let _ = unsafe {
        let places = [real, effective, saved].map(|user| core::ptr::from_mut(user).addr());
        sys::raw(
            libc::SYS_getresuid,
            [places[0], places[1], places[2], 0, 0, 0],
        )
    };
    users
}

/// Whether none of them owns the region.
pub fn differs_from_owner(users: Users) -> bool {
    !users.contains(&owner())
}

/// Notes the owner of a new region.
pub fn note_owner() {
    USER.store(current()[1], Ordering::Relaxed);
    SHARED.store(false, Ordering::Relaxed);
}

/// The user who owns the region.
pub fn owner() -> u32 {
    USER.load(Ordering::Relaxed)
}

/// Notes what number the daemon has for the user of this process.
pub fn note_number_at_daemon(user: u64) {
    AT_DAEMON.store(u32::try_from(user).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// The number that the daemon has for a user whom this process sees under `user`; of a user namespace it is known for its own user only.
pub fn at_daemon(user: u32) -> Option<u32> {
    match are_renumbered() {
        false => Some(user),
        true if user == owner() => {
            Some(AT_DAEMON.load(Ordering::Relaxed)).filter(|user| *user != u32::MAX)
        }
        true => None,
    }
}

/// Whether the owner of the region is the host's root, and not one of a user namespace.
pub fn is_root() -> bool {
    const ROOT: u32 = 0;
    owner() == ROOT && at_daemon(ROOT) == Some(ROOT)
}

/// Whether the next image of this process would belong to another user, although this process may go back: an exec
/// drops the saved user.
pub fn changes_owner_at_exec() -> bool {
    let [real, effective, _] = current();
    differs_from_owner([real, effective, effective])
}

/// Whether users have other numbers here than in the daemon's view, or none, as in a user namespace.
pub fn are_renumbered() -> bool {
    const UNKNOWN: u32 = 0;
    let of = |is: bool| u32::from(is) + 1;
    if RENUMBERED.load(Ordering::Relaxed) == UNKNOWN {
        RENUMBERED.store(of(in_user_namespace()), Ordering::Relaxed);
    }
    RENUMBERED.load(Ordering::Relaxed) == of(true)
}

/// Notes that another process may map the region from now on, or this process maps another one's.
pub fn note_shared() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Whether other processes may map the region, or this process has mapped another one's.
pub fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}
