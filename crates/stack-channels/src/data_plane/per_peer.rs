//! A peer as one worker sees it: its channels, and the order of the sockets that this worker owns.

use super::connection::Peer;
use super::line::Line;
use super::route::Route;
use netchannel_scheduler::{
    ChannelView, Class, Kind, NetScheduler, Registry, Settings, SocketId, TenantId, TenantView,
};
use std::sync::Arc;

/// The one tenant, until there are others.
const TENANT: TenantId = TenantId(0);

/// A peer, as a worker sees it.
pub struct PerPeer {
    /// The peer.
    pub peer: Arc<Peer>,
    /// Orders the sockets that this worker owns, and chooses their channels.
    pub scheduler: NetScheduler,
    /// Its channels.
    pub routes: Vec<Arc<Route>>,
    /// The same, as policies see them.
    pub views: Vec<ChannelView>,
    /// Those of this worker.
    pub own: Vec<usize>,
    version: u64,
    /// When caps let more go.
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

    /// Brings the channels up to date; `lines` are the worker's. True if they have changed.
    pub fn refresh(&mut self, lines: &[Option<Box<Line>>]) -> bool {
        if !self.peer.copy_routes(&mut self.version, &mut self.routes) {
            return false;
        }
        self.views.clear();
        self.views
            .extend(self.routes.iter().map(|route| route.view()));
        let here = lines.iter().enumerate().filter_map(|(index, line)| {
            let line = line.as_ref()?;
            let mine = self.routes.iter().any(|one| Arc::ptr_eq(one, &line.route));
            mine.then_some(index)
        });
        self.own = here.collect();
        true
    }

    /// Other policies, from the next segment on; a kind that stays as it was keeps what it knows.
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

    /// Takes a socket into the order.
    pub fn attach(&mut self, entry: u32, class: Class) {
        // A number beyond what the order takes: the socket never sends, and times out.
        let _ = self.scheduler.attach(SocketId(entry), TENANT, class);
    }
}
