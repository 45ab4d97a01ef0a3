//! What the daemon and the workers tell each other.

use super::connection::Peer;
use super::loss::Lost;
use crate::announcement::Announcement;
use crate::line_id::LineId;
use netchannel_abi::address::Address;
use netchannel_driver::Channel;
use netchannel_scheduler::{ChannelId, Settings};
use netchannel_service::core_engine;
use netchannel_vns::Reason;
use netchannel_wire::GoAwayReason;
use std::sync::Arc;

/// A listener of a peer.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Whose.
    pub peer: Arc<Peer>,
    /// Its number there.
    pub theirs: u32,
    /// Where it listens.
    pub address: Address,
}

/// What fails of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Connects of programs here that have no answer yet.
    Connects,
    /// All sockets.
    Sockets,
    /// Its start is over: its channels end, too.
    Start,
}

/// What is told to the workers.
pub enum Command {
    /// From CoreEngine, about links of this host.
    Links(core_engine::Command),
    /// A channel is up. `rest` are bytes that came behind its handshake.
    Channel {
        /// Where it leads.
        peer: Arc<Peer>,
        /// Its name on this host.
        line: LineId,
        /// Class and number.
        id: ChannelId,
        /// The transport.
        channel: Box<dyn Channel>,
        /// Bytes that were read of it already.
        rest: Vec<u8>,
    },
    /// Say GOAWAY on a channel, let what is on its way come, and end it.
    Retire {
        /// Which.
        line: LineId,
        /// What to say.
        reason: GoAwayReason,
    },
    /// End a channel now: the peer has lost it.
    Cut {
        /// Which.
        line: LineId,
    },
    /// Send whole frames on a channel, if it still is.
    Frames {
        /// Which.
        line: LineId,
        /// The frames.
        bytes: Vec<u8>,
    },
    /// A listener of a peer has this number here.
    Listener {
        /// The number here.
        number: u32,
        /// Which.
        listed: Listed,
    },
    /// A listener of a peer is gone.
    Unlisten(u32),
    /// Sockets with a peer fail: it is out of reach, or began anew.
    Fail {
        /// The peer.
        peer: Arc<Peer>,
        /// What its sockets are told.
        reason: Reason,
        /// Which of them.
        what: Failing,
    },
    /// Other policies choose from now on.
    Policies(Arc<Settings>),
    /// The daemon ends.
    Stop,
}

/// What workers tell.
#[derive(Debug)]
pub enum Report {
    /// They ask CoreEngine for something.
    Request(core_engine::StackRequest),
    /// A channel is no more.
    ChannelLost {
        /// Which.
        line: LineId,
        /// Why.
        reason: Lost,
    },
    /// The peer said GOAWAY on a channel.
    GoAway {
        /// On which.
        line: LineId,
        /// Why.
        reason: GoAwayReason,
    },
    /// The peer announced something, on this channel.
    Announced {
        /// On which.
        line: LineId,
        /// What.
        announcement: Announcement,
    },
    /// A worker has much to do, and nobody watches.
    Busy,
}
