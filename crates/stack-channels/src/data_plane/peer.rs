//! A peer in one epoch: its sockets with this host, and the channels that lead to it.

use super::route::Route;
use super::rules::Rules;
use super::sockets::{Counted, Sockets};
use super::traffic::{Seen, Traffic};
use crate::channel_instance::ChannelInstance;
use netchannel_abi::address::{Address, INET6};
use netchannel_scheduler::{ChannelId, ChannelView};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The packet size that is assumed while that of the path is not known.
const ETHERNET: u32 = 1500;
/// The size of the TCP header with time stamps.
const TCP_HEADER: u32 = 32;
/// The minimum payload of a TCP packet.
const LEAST_PACKET_PAYLOAD: u32 = 48;

/// The limits that both hosts have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The largest payload of a DATA frame that the peer accepts, in bytes.
    pub payload: u32,
    /// The largest payload of a DATA frame that this host accepts, in bytes.
    pub own_payload: u32,
    /// The largest number of sockets that this host holds with the peer.
    pub sockets: u32,
    /// The largest number of sockets that the peer holds with this host. Its handles are below this number.
    pub peer_sockets: u32,
    /// A channel is dead after this time without a frame of the peer, in nanoseconds.
    pub silence: u64,
    /// The peer considers a channel dead after this time without a frame of this host, in nanoseconds.
    pub peer_silence: u64,
}

/// The counters of a peer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sockets made since the peer came up.
    pub opened: AtomicU64,
    /// Connections that this host or the peer refused.
    pub refused: AtomicU64,
    /// Protocol violations of the peer.
    pub violations: AtomicU64,
    /// The traffic of channels that have ended.
    past: Traffic,
}

impl Counters {
    /// Adds to a counter. Readers need no order.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// One start of a peer's daemon, with which this host has sockets of type `S`.
#[derive(Debug)]
pub struct Peer<S> {
    number: u32,
    terms: Terms,
    rules: Mutex<Rules>,
    sockets: Mutex<Sockets<S>>,
    routes: Mutex<Vec<Arc<Route>>>,
    /// Channels that take no new segments and have not ended.
    leaving: Mutex<Vec<Arc<Route>>>,
    /// Changes with every change of the routes.
    version: AtomicU64,
    keys: AtomicU32,
    /// This start of the peer has ended.
    ended: AtomicBool,
    /// The peer has lost all channels.
    down: AtomicBool,
    /// Its connections that wait for a listener. Only the first worker changes the number.
    pub(super) waiting: AtomicUsize,
    /// The largest packet on the path; 0 while it is not known.
    packet: AtomicU32,
    /// The counters.
    pub counters: Counters,
}

impl<S: Counted> Peer<S> {
    /// A peer without channels. `number` is unique.
    #[must_use]
    pub fn new(number: u32, terms: Terms, rules: Rules) -> Arc<Self> {
        Arc::new(Self {
            number,
            terms,
            rules: Mutex::new(rules),
            sockets: Mutex::new(Sockets::new(terms.sockets, terms.peer_sockets)),
            routes: Mutex::new(Vec::new()),
            leaving: Mutex::new(Vec::new()),
            version: AtomicU64::new(1),
            keys: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            down: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            packet: AtomicU32::new(0),
            counters: Counters::default(),
        })
    }

    /// A channel reports the packet size of its path.
    pub(super) fn note_packet(&self, packet: u32) {
        // Both are relaxed: the word guards nothing.
        if packet != 0 && self.packet.load(Ordering::Relaxed) != packet {
            self.packet.store(packet, Ordering::Relaxed);
        }
    }

    /// The payload that TCP would put into one packet of a connection to `address`. This much is never held back.
    pub(super) fn packet_payload(&self, address: &Address) -> u64 {
        let packet = match self.packet.load(Ordering::Relaxed) {
            0 => ETHERNET,
            packet => packet,
        };
        let headers = match address.unmapped().family {
            INET6 => 40 + TCP_HEADER,
            _ => 20 + TCP_HEADER,
        };
        u64::from(packet.saturating_sub(headers).max(LEAST_PACKET_PAYLOAD))
    }

    /// The number of the peer.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// This start has ended: it makes no new connection.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether this start has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The agreed limits.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The addresses that its connections may have.
    pub fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sockets(&self) -> MutexGuard<'_, Sockets<S>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Route>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn routes(&self) -> MutexGuard<'_, Vec<Arc<Route>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a channel that is up.
    pub(super) fn add_route(
        &self,
        instance: ChannelInstance,
        id: ChannelId,
        worker: usize,
    ) -> Arc<Route> {
        self.down.store(false, Ordering::Relaxed);
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let route = Arc::new(Route {
            instance,
            id,
            key: netchannel_vns::ChannelId(key),
            worker,
            queued: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            traffic: Traffic::default(),
            seen: Seen::default(),
        });
        let mut routes = self.routes();
        routes.push(Arc::clone(&route));
        self.version.fetch_add(1, Ordering::Release);
        route
    }

    /// A channel takes no new segments.
    pub(super) fn remove_route(&self, route: &Arc<Route>) {
        let mut routes = self.routes();
        let before = routes.len();
        routes.retain(|one| !Arc::ptr_eq(one, route));
        if routes.len() == before {
            return;
        }
        let mut leaving = self.leaving();
        leaving.push(Arc::clone(route));
        drop(leaving);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Brings a copy of the routes up to date. True if it has changed.
    pub(super) fn copy_routes(&self, version: &mut u64, copy: &mut Vec<Arc<Route>>) -> bool {
        if self.version.load(Ordering::Acquire) == *version {
            return false;
        }
        let routes = self.routes();
        *version = self.version.load(Ordering::Acquire);
        copy.clone_from(&routes);
        true
    }

    /// No channel is left. Until there is one again, connecting programs are sent to the kernel.
    pub(super) fn go_down(&self) {
        // Relaxed: the word is independent. A worker that sees it late waits for a channel, or for
        // `FailureScope::Connects`, which follows.
        self.down.store(true, Ordering::Relaxed);
    }

    /// Whether the last channel was lost and none came since.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Channels that are up.
    #[must_use]
    pub fn channels(&self) -> Vec<ChannelView> {
        self.routes().iter().map(|route| route.view()).collect()
    }

    /// Channels that are up, and channels that only finish what they have.
    #[must_use]
    pub fn all_routes(&self) -> (Vec<Arc<Route>>, Vec<Arc<Route>>) {
        (self.routes().clone(), self.leaving().clone())
    }

    /// A channel has ended: its traffic is added to the counters.
    pub(super) fn forget_route(&self, route: &Arc<Route>) {
        self.remove_route(route);
        let mut leaving = self.leaving();
        let before = leaving.len();
        leaving.retain(|one| !Arc::ptr_eq(one, route));
        if leaving.len() < before {
            self.counters.past.absorb(&route.traffic);
        }
    }

    /// The traffic of all channels so far.
    #[must_use]
    pub fn traffic(&self) -> netchannel_control::hosts::Traffic {
        let (up, leaving) = self.all_routes();
        let all = up.iter().chain(&leaving);
        all.map(|route| route.traffic.shown())
            .fold(self.counters.past.shown(), |sum, one| sum.plus(one))
    }

    /// The number of living sockets.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.sockets().len()
    }
}
