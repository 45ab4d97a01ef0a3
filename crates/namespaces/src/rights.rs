//! The right to make network namespaces, for users other than root.

use crate::Error;
use crate::namespace::{Namespace, unshare};
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

/// How often the user namespace is tried while an ended thread is being cleaned up.
const ATTEMPTS: u32 = 200;

/// Gains the right to make network namespaces. A process of another user than root moves into a user namespace in which
/// it is root, and stays in it with all programs that it starts. Rights on files and towards other users do not change.
/// Does nothing where it is not needed.
///
/// To be called while the process has one thread only.
///
/// # Errors
/// If neither is allowed.
pub fn gain_rights() -> Result<(), Error> {
    let refused = match Namespace::make() {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    // SAFETY: no arguments, cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    become_root(user, group)
        .and_then(|()| Namespace::make())
        .map(drop)
        .map_err(|_| Error::NotAllowed(refused))
}

fn become_root(user: libc::uid_t, group: libc::gid_t) -> io::Result<()> {
    let mut attempts = 0;
    // The thread of the former attempt has ended, but may not be cleaned up yet: this process then has two threads.
    while let Err(error) = unshare(libc::CLONE_NEWUSER) {
        attempts += 1;
        if error.raw_os_error() != Some(libc::EINVAL) || attempts == ATTEMPTS {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(1));
    }
    // Without this the kernel takes no map of groups from us.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}
