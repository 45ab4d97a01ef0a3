//! What the module knows: the peers, the data plane to them, and which starts of peers' daemons there are.

use crate::data_plane::{DataPlane, Peer};
use crate::peers::{PeerView, Peers, StartId};
use crate::prefix::Prefix;
use crate::scaling::Scaling;
use crate::settings::Keys;
use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_scheduler::{ChannelId, ChannelView, Class, Phase, WorkerId};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// One start of a peer's daemon, as the data plane has it.
pub struct Known {
    /// The peer's name.
    pub name: Arc<str>,
    /// The peer.
    pub peer: Arc<Peer>,
}

/// All channels to a peer, those too that are being made.
pub fn all_channels(peer: &PeerView, known: &Known) -> Vec<ChannelView> {
    let (up, leaving) = known.peer.lines();
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

/// What moved with a peer in those starts of its daemon that are no more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    pub traffic: netchannel_control::hosts::Traffic,
    pub opened: u64,
    pub refused: u64,
}

/// The module.
pub struct ChannelsStack {
    pub(super) peers: Peers,
    /// When it began.
    pub(super) made: Instant,
    /// The name of what channels run over.
    pub(super) carrier: String,
    pub(super) plane: Rc<DataPlane>,
    pub(super) starts: HashMap<StartId, Known>,
    /// By the peer's name.
    pub(super) past: HashMap<Arc<str>, Past>,
    pub(super) scaling: Scaling,
    pub(super) configuration: Arc<Configuration>,
    pub(super) keys: Keys,
    pub(super) prefixes: HashMap<String, Vec<Prefix>>,
    pub(super) own: Vec<Address>,
    /// Something was told to the peers, and what comes of it was not looked at.
    pub(super) touched: bool,
}

impl std::fmt::Debug for ChannelsStack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ChannelsStack")
            .finish_non_exhaustive()
    }
}
