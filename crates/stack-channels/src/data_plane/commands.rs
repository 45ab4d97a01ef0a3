//! The messages between the daemon and the workers.

use super::connection::Peer;
use super::loss::Lost;
use crate::announcement::Announcement;
use crate::channel_instance::ChannelInstance;
use crate::published::Ports;
use netchannel_abi::address::Address;
use netchannel_driver::Channel;
use netchannel_scheduler::{ChannelId, Settings};
use netchannel_service::core_engine;
use netchannel_service::link::Parts;
use netchannel_service::stack::Origin;
use netchannel_vns::Reason;
use netchannel_wire::GoAwayReason;
use std::sync::Arc;

/// A listener of a peer.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The peer.
    pub peer: Arc<Peer>,
    /// The listener's number on the peer.
    pub theirs: u32,
    /// The address of the listener.
    pub address: Address,
}

/// The sockets of a peer that a failure affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureScope {
    /// Connects of programs of this host that have no answer yet.
    Connects,
    /// All sockets.
    Sockets,
    /// All sockets and all channels: the start of the peer has ended.
    Start,
}

/// A command to the workers.
pub enum Command {
    /// A command of CoreEngine about links of this host.
    Links(core_engine::Command),
    /// The server's end of a link over which a tenant's connections come.
    Crossing(Parts, Arc<Origin>),
    /// A channel is up. `rest` are bytes that followed its handshake.
    Channel {
        /// The peer to which it leads.
        peer: Arc<Peer>,
        /// Its name on this host.
        instance: ChannelInstance,
        /// Its class and number.
        id: ChannelId,
        /// The channel of the transport.
        channel: Box<dyn Channel>,
        /// Bytes that were already read from it.
        rest: Vec<u8>,
    },
    /// Send GOAWAY on a channel, wait for data in flight, and end it.
    Retire {
        /// The channel.
        instance: ChannelInstance,
        /// The reason in GOAWAY.
        reason: GoAwayReason,
    },
    /// End a channel now: the peer has lost it.
    Close {
        /// The channel.
        instance: ChannelInstance,
    },
    /// Send whole frames on a channel, if it is still up.
    Frames {
        /// The channel.
        instance: ChannelInstance,
        /// The frames.
        bytes: Vec<u8>,
    },
    /// A listener of a peer gets this number on this host.
    Listener {
        /// The number on this host.
        number: u32,
        /// The listener.
        listed: Listed,
    },
    /// A listener of a peer is closed.
    Unlisten(u32),
    /// Sockets with a peer fail: the peer is unreachable, or has restarted.
    Fail {
        /// The peer.
        peer: Arc<Peer>,
        /// The reason that its sockets get.
        reason: Reason,
        /// The affected sockets.
        what: FailureScope,
    },
    /// Use other policies from now on.
    Policies(Arc<Settings>),
    /// The daemon shuts down.
    Stop,
}

/// A report of a worker.
#[derive(Debug)]
pub enum Report {
    /// A request to CoreEngine.
    Request(core_engine::StackRequest),
    /// A channel was lost or has ended.
    ChannelLost {
        /// The channel.
        instance: ChannelInstance,
        /// The reason.
        reason: Lost,
    },
    /// The peer sent GOAWAY on a channel.
    GoAway {
        /// The channel.
        instance: ChannelInstance,
        /// The reason.
        reason: GoAwayReason,
    },
    /// The peer sent an announcement on this channel.
    Announced {
        /// The channel.
        instance: ChannelInstance,
        /// The announcement.
        announcement: Announcement,
    },
    /// Where clients come in at a tenant's stack.
    Published(Ports),
    /// A worker is busy, and its load is not sampled.
    Busy,
}
