//! Snapshots of connections with remote programs, for display.

use super::connection::Peer;
use netchannel_scheduler::{ChannelId, Class};

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionSnapshot {
    /// The daemon's number of the link of its lane.
    pub link: u64,
    /// The slot in that link.
    pub slot: u32,
    /// The class in which it is served.
    pub class: Class,
    /// What decided the class.
    pub source: &'static str,
    /// The worker that sends for it.
    pub worker: usize,
    /// The channels that it used lately.
    pub channels: Vec<ChannelId>,
}

impl Peer {
    /// Connections that have a program on this host: at most `most` from place `first` on, and the place from which
    /// others may follow.
    #[must_use]
    pub fn snapshots(&self, first: u32, most: usize) -> (Vec<ConnectionSnapshot>, Option<u32>) {
        let some = self.sockets().page(first, most);
        let last = some.last().filter(|_| some.len() == most);
        let next = last.and_then(|(index, _)| index.checked_add(1));
        let snapshots = some.iter().filter_map(|(_, connection)| {
            let state = connection.lock();
            let slot = state.lane.as_ref()?.handle().index;
            let (class, source) = state.class();
            Some(ConnectionSnapshot {
                link: connection.link().number(),
                slot,
                class,
                source,
                worker: connection.owner(),
                channels: state.used.channels(),
            })
        });
        (snapshots.collect(), next)
    }
}
