//! The state of the module: the peers, the data plane, and the known starts of the peers' daemons.

use crate::data_plane::{DataPlane, Peer};
use crate::peers::{PeerView, Peers, StartId};
use crate::prefix::Prefix;
use crate::published::Published;
use crate::scaling::Scaling;
use crate::settings::Keys;
use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_scheduler::{ChannelId, ChannelView, Class, Phase, WorkerId};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// One start of a peer's daemon, with its state in the data plane.
pub struct KnownStart {
    /// The peer's name.
    pub name: Arc<str>,
    /// The peer.
    pub peer: Arc<Peer>,
}

/// All channels to a peer, including those that are being made.
pub fn all_channels(peer: &PeerView, known: &KnownStart) -> Vec<ChannelView> {
    let (up, leaving) = known.peer.all_routes();
    let draining = leaving.iter().map(|route| ChannelView {
        phase: Phase::Draining,
        ..route.view()
    });
    let mut channels: Vec<ChannelView> = up.iter().map(|route| route.view()).collect();
    for class in Class::ALL {
        let wanted = u32::from(*peer.wanted.get(class));
        for number in 0..wanted {
            let id = ChannelId { class, number };
            if !channels.iter().any(|channel| channel.id == id) {
                channels.push(ChannelView {
                    phase: Phase::Opening,
                    ..ChannelView::idle(id, WorkerId(0))
                });
            }
        }
    }
    channels.extend(draining);
    channels
}

/// Counters of a peer's former starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    pub traffic: netchannel_control::hosts::Traffic,
    pub opened: u64,
    pub refused: u64,
}

/// The module.
pub struct ChannelsStack {
    pub(super) peers: Peers,
    /// When the module started.
    pub(super) made: Instant,
    /// The name of the transport.
    pub(super) carrier: String,
    pub(super) plane: Rc<DataPlane>,
    pub(super) starts: HashMap<StartId, KnownStart>,
    /// By the name of the peer.
    pub(super) past: HashMap<Arc<str>, Past>,
    pub(super) scaling: Scaling,
    pub(super) configuration: Arc<Configuration>,
    pub(super) keys: Keys,
    pub(super) prefixes: HashMap<String, Vec<Prefix>>,
    pub(super) own: Vec<Address>,
    /// Published ports of tenants.
    pub(super) published: Published,
    /// The peers have new input that was not processed yet.
    pub(super) has_news: bool,
}

impl std::fmt::Debug for ChannelsStack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ChannelsStack")
            .finish_non_exhaustive()
    }
}
