//! Whose region this is, and which users the process is.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use netchannel_trust::in_user_namespace;

use crate::ground::sys;

/// See [`are_renumbered`]: 0 where it is not known yet. Asked once: later a filter of system calls may forbid it.
static RENUMBERED: AtomicU32 = AtomicU32::new(0);
/// The user whose region this is.
static USER: AtomicU32 = AtomicU32::new(0);
/// Whether other processes may have the region, or this one has others'.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Real, effective and saved user.
pub type Users = [u32; 3];

/// The users that the process is now.
pub fn now() -> Users {
    let mut users: Users = [0; 3];
    let [real, effective, saved] = &mut users;
    // SAFETY: three places of ours.
    let _ = unsafe {
        let places = [real, effective, saved].map(|user| core::ptr::from_mut(user).addr());
        sys::raw(
            libc::SYS_getresuid,
            [places[0], places[1], places[2], 0, 0, 0],
        )
    };
    users
}

/// Whether none of them is the user whose region this is.
pub fn is_another(users: Users) -> bool {
    !users.contains(&owner())
}

/// The process has a region, as the user it is.
pub fn attached() {
    USER.store(now()[1], Ordering::Relaxed);
    SHARED.store(false, Ordering::Relaxed);
}

/// The user whose region this is.
pub fn owner() -> u32 {
    USER.load(Ordering::Relaxed)
}

/// Whether another image in this process would be another user's, though this process may go back: an exec keeps no saved user.
pub fn ends_at_exec() -> bool {
    let [real, effective, _] = now();
    is_another([real, effective, effective])
}

/// Whether users have other numbers here than to the daemon, or none, as in a user namespace.
pub fn are_renumbered() -> bool {
    const UNKNOWN: u32 = 0;
    let of = |is: bool| u32::from(is) + 1;
    if RENUMBERED.load(Ordering::Relaxed) == UNKNOWN {
        RENUMBERED.store(of(in_user_namespace()), Ordering::Relaxed);
    }
    RENUMBERED.load(Ordering::Relaxed) == of(true)
}

/// Another process may have the region from now on, or this one has another's.
pub fn shares() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Whether other processes may have the region, or this one has others'.
pub fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}
