//! The process at the other end of a connected socket.

use crate::owner::Standing;
use crate::{Distrust, Owners, calls};

/// Checks that the process that listens at the other end belongs to the calling user or root. Called before the first
/// message. `place` is how the owner of the socket is known: an unmapped user counts as the host's root only where the
/// path said so.
///
/// # Errors
/// The process that is not trusted.
pub fn judge(socket: i32, place: Standing) -> Result<(), Distrust> {
    let found = calls::peer(socket).map_err(Distrust::Unknown)?;
    let owners = Owners::now();
    match owners.standing(found.uid) {
        Standing::Trusted => Ok(()),
        Standing::Unmapped if place == Standing::Unmapped => Ok(()),
        Standing::Unmapped | Standing::Stranger => Err(Distrust::Peer {
            process: found.pid,
            user: found.uid,
            own: owners.own,
        }),
    }
}
