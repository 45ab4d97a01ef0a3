//! The process at the other end of a connected socket.

use crate::owner::Ownership;
use crate::{Distrust, Owners, calls};

/// Checks that the process that listens at the other end belongs to the calling user or root. Called before the first
/// message. `place` is how the owner of the socket is known: an unmapped user counts as the host's root only where the
/// path said so.
///
/// # Errors
/// The process that is not trusted.
pub fn judge(socket: i32, place: Ownership) -> Result<(), Distrust> {
    let found = calls::peer(socket).map_err(Distrust::Unknown)?;
    let owners = Owners::now();
    match owners.ownership(found.uid) {
        Ownership::Trusted => Ok(()),
        Ownership::Unmapped if place == Ownership::Unmapped => Ok(()),
        Ownership::Unmapped | Ownership::Stranger => Err(Distrust::Peer {
            process: found.pid,
            user: found.uid,
            own: owners.own,
        }),
    }
}
