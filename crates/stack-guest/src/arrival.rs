//! Connections of the host that no program has yet.

use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::routing::Destination;

/// A connection that no program has yet.
#[derive(Debug)]
pub enum Arrival {
    /// It looks for a link.
    Waiting(Destination),
    /// CoreEngine offers it.
    Offered(Destination, Box<Lane>, Key),
}
