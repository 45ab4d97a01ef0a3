//! A peer as one worker sees it: its channels, and the send order of the sockets that this worker owns.

use super::connection::Peer;
use super::open_channel::OpenChannel;
use super::route::Route;
use netchannel_scheduler::{
    ChannelView, Class, Kind, NetScheduler, Registry, Settings, SocketId, TenantId, TenantView,
};
use std::sync::Arc;

/// The only tenant, until there are others.
const TENANT: TenantId = TenantId(0);

/// A peer, as a worker sees it.
pub struct PerPeer {
    /// The peer.
    pub peer: Arc<Peer>,
    /// Orders the sockets that this worker owns, and chooses their channels.
    pub scheduler: NetScheduler,
    /// Its channels.
    pub routes: Vec<Arc<Route>>,
    /// The channels in the form that policies see.
    pub views: Vec<ChannelView>,
    /// The indices of this worker's channels.
    pub own: Vec<usize>,
    version: u64,
    /// When caps allow more bytes.
    pub until: Option<u64>,
}

impl PerPeer {
    /// A peer without channels.
    pub fn new(peer: &Arc<Peer>, policies: &Settings, now: u64) -> Option<Self> {
        let registry = Registry::builtin();
        let order = registry.order(policies.get(Kind::Order)).ok()?;
        let channel = registry.channel(policies.get(Kind::Channel)).ok()?;
        let mut scheduler = NetScheduler::new(order, channel);
        scheduler
            .set_tenant(TenantView::unlimited(TENANT), now)
            .ok()?;
        Some(Self {
            peer: Arc::clone(peer),
            scheduler,
            routes: Vec::new(),
            views: Vec::new(),
            own: Vec::new(),
            version: 0,
            until: None,
        })
    }

    /// Brings the channels up to date. `channels` are those of the worker. True if they have changed.
    pub fn refresh(&mut self, channels: &[Option<Box<OpenChannel>>]) -> bool {
        if !self.peer.copy_routes(&mut self.version, &mut self.routes) {
            return false;
        }
        self.views.clear();
        self.views
            .extend(self.routes.iter().map(|route| route.view()));
        let here = channels.iter().enumerate().filter_map(|(index, channel)| {
            let channel = channel.as_ref()?;
            let mine = self
                .routes
                .iter()
                .any(|one| Arc::ptr_eq(one, &channel.route));
            mine.then_some(index)
        });
        self.own = here.collect();
        true
    }

    /// Sets other policies, from the next segment on. A policy of a kind that did not change keeps its state.
    pub fn set_policies(&mut self, before: &Settings, policies: &Settings, now: u64) {
        let registry = Registry::builtin();
        let differs = |kind| before.get(kind) != policies.get(kind);
        let channel = policies.get(Kind::Channel);
        if differs(Kind::Channel)
            && let Ok(channel) = registry.channel(channel)
        {
            self.scheduler.set_channel_policy(channel);
        }
        if differs(Kind::Order)
            && let Ok(order) = registry.order(policies.get(Kind::Order))
        {
            self.scheduler.set_order_policy(order, now);
        }
    }

    /// Adds a socket to the order.
    pub fn attach(&mut self, entry: u32, class: Class) {
        // An error means that the entry is beyond the limit of the order: the socket never sends, and times out.
        let _ = self.scheduler.attach(SocketId(entry), TENANT, class);
    }
}
