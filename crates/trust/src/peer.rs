//! Who is at the other end of a connected socket.

use crate::owner::Standing;
use crate::{Distrust, Owners, calls};

/// Whether who listens at the other end is the calling user, or root. Before the first message. `place` is how the owner of the
/// socket is known: who is unmapped is the host's root only where the path said so.
///
/// # Errors
/// Whose process it is.
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
