//! The creation of a connection.

use super::connection::{Connection, Peer, Wanted};
use super::peer::Counters;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_vns::{Settings, Start, VirtualSocket};
use netchannel_wire::Handle;
use rustix::io::Errno;
use std::sync::Arc;

/// The settings of every socket.
pub fn settings() -> Settings {
    Settings::default()
}

/// The initial sequences and capacity of a connection.
pub const fn start(lane: &Lane) -> Start {
    Start {
        transmit: 0,
        receive: 0,
        capacity: lane.capacity(),
    }
}

/// Makes the socket and gives it a handle. Where there are too many, the connection is refused.
pub fn insert(
    peer: &Arc<Peer>,
    link: &Arc<LinkEnd>,
    wanted: Wanted,
    (socket, mut lane): (VirtualSocket, Lane),
    (stamp, theirs): (u64, Option<Handle>),
    now: u64,
) -> Option<Arc<Connection>> {
    let mut sockets = peer.sockets();
    if !sockets.has_room(link.user()) {
        drop(sockets);
        Counters::add(&peer.counters.refused, 1);
        lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
        return None;
    }
    lane.set_packet_size(peer.packet_payload(&wanted.server));
    let make = |handle| {
        let names = (Arc::clone(peer), handle);
        let link = Arc::clone(link);
        Arc::new(Connection::new(
            names,
            link,
            wanted,
            (socket, lane),
            (stamp, theirs),
        ))
    };
    Counters::add(&peer.counters.opened, 1);
    // The room was checked above, so that no lane is lost.
    sockets.insert(make, now).ok()
}
