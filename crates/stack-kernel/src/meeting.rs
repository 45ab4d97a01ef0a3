//! A connection between two tenants that meet.

use crate::served::TenantNumber;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::relayed::Relayed;

/// A link and a slot.
pub type Place = (Key, u32);

/// A connection.
#[derive(Debug)]
pub struct Meeting {
    /// Tells it from others of its number.
    pub stamp: u64,
    /// Who connected, and whose listener it is.
    pub tenants: [TenantNumber; 2],
    /// Where the lanes of both are. The server's tenant counts the connection as long as it has one.
    pub places: [Option<Place>; 2],
    /// Whether it waits for its turn.
    pub queued: bool,
    /// How far it has come.
    pub state: Relayed,
}

impl Meeting {
    /// One whose lane comes next.
    pub const fn new(stamp: u64, tenants: [TenantNumber; 2]) -> Self {
        Self {
            stamp,
            tenants,
            places: [None; 2],
            queued: false,
            state: Relayed::Changing,
        }
    }

    /// CoreEngine could not offer it: its lane towards the listener, which is still watched.
    pub fn take_back(&mut self) -> Option<(Lane, Key)> {
        let [_, place] = self.places;
        let (key, _) = place?;
        Some((self.state.take_back()?, key))
    }
}
