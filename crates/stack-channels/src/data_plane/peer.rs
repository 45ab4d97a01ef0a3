//! A peer in one epoch: its sockets with this host, and the channels that lead to it.

use super::route::Route;
use super::rules::Rules;
use super::sockets::{Counted, Sockets};
use super::traffic::{Seen, Traffic};
use crate::line_id::LineId;
use netchannel_abi::address::{Address, INET6};
use netchannel_scheduler::{ChannelId, ChannelView};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The packets of a network of which nothing is known.
const ETHERNET: u32 = 1500;
/// Of TCP, with time stamps.
const TCP_HEADER: u32 = 32;
/// What TCP puts into a packet at least.
const LEAST_PIECE: u32 = 48;

/// What both hosts have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Most payload of one DATA frame that the peer takes, in bytes.
    pub payload: u32,
    /// Most payload of one DATA frame that this host takes, in bytes.
    pub own_payload: u32,
    /// Most sockets that this host holds with the peer.
    pub sockets: u32,
    /// Most sockets that the peer holds with this host: its handles are below.
    pub peer_sockets: u32,
    /// Nanoseconds without a frame of the peer after which a channel is dead.
    pub silence: u64,
    /// Nanoseconds without a frame of this host after which the peer takes a channel for dead.
    pub peer_silence: u64,
}

/// What happened between this host and a peer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sockets made since the peer came up.
    pub opened: AtomicU64,
    /// Connections that this host or the peer refused.
    pub refused: AtomicU64,
    /// Times that the peer broke the contract.
    pub violations: AtomicU64,
    /// What moved on channels that are no more.
    past: Traffic,
}

impl Counters {
    /// Counts; whoever reads wants no order.
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
    /// Channels that take nothing new and are not over.
    leaving: Mutex<Vec<Arc<Route>>>,
    /// Changes with the routes.
    version: AtomicU64,
    keys: AtomicU32,
    /// This start is over.
    ended: AtomicBool,
    /// It has lost all channels.
    down: AtomicBool,
    /// Its connections that are on their way to a listener; the first worker counts.
    pub(super) waiting: AtomicUsize,
    /// The largest packet that gets there; 0 while not known.
    packet: AtomicU32,
    /// What moved.
    pub counters: Counters,
}

impl<S: Counted> Peer<S> {
    /// A peer without channels. `number` is not used for another one.
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

    /// A channel shows how large a packet gets to it.
    pub(super) fn note_packet(&self, packet: u32) {
        // Relaxed, both: the word guards nothing.
        if packet != 0 && self.packet.load(Ordering::Relaxed) != packet {
            self.packet.store(packet, Ordering::Relaxed);
        }
    }

    /// What TCP would put into one packet to it, of a connection to `address`: so much is never held back.
    pub(super) fn piece(&self, address: &Address) -> u64 {
        let packet = match self.packet.load(Ordering::Relaxed) {
            0 => ETHERNET,
            packet => packet,
        };
        let headers = match address.unmapped().family {
            INET6 => 40 + TCP_HEADER,
            _ => 20 + TCP_HEADER,
        };
        u64::from(packet.saturating_sub(headers).max(LEAST_PIECE))
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// This start is over: it makes no new connection.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether it is over.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// What was agreed.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Which addresses its connections may have.
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

    /// A channel is up.
    pub(super) fn add_route(&self, line: LineId, id: ChannelId, worker: usize) -> Arc<Route> {
        self.down.store(false, Ordering::Relaxed);
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let route = Arc::new(Route {
            line,
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

    /// A channel takes no more.
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

    /// Brings a copy of the routes up to date.
    pub(super) fn copy_routes(&self, version: &mut u64, copy: &mut Vec<Arc<Route>>) -> bool {
        if self.version.load(Ordering::Acquire) == *version {
            return false;
        }
        let routes = self.routes();
        *version = self.version.load(Ordering::Acquire);
        copy.clone_from(&routes);
        true
    }

    /// No channel is left. Until there is one again, who connects is sent to the kernel.
    pub(super) fn go_down(&self) {
        // Relaxed: a word by itself. Who sees it late waits for a channel, or for `Failing::Connects`, which comes behind it.
        self.down.store(true, Ordering::Relaxed);
    }

    /// Whether that was said, and no channel came since.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Channels that are up.
    #[must_use]
    pub fn channels(&self) -> Vec<ChannelView> {
        self.routes().iter().map(|route| route.view()).collect()
    }

    /// Channels that are up, and those that finish what they have.
    #[must_use]
    pub fn lines(&self) -> (Vec<Arc<Route>>, Vec<Arc<Route>>) {
        (self.routes().clone(), self.leaving().clone())
    }

    /// A channel is no more: what moved on it is kept.
    pub(super) fn bury_route(&self, route: &Arc<Route>) {
        self.remove_route(route);
        let mut leaving = self.leaving();
        let before = leaving.len();
        leaving.retain(|one| !Arc::ptr_eq(one, route));
        if leaving.len() < before {
            self.counters.past.absorb(&route.traffic);
        }
    }

    /// What moved on all channels so far.
    #[must_use]
    pub fn traffic(&self) -> netchannel_control::hosts::Traffic {
        let (up, leaving) = self.lines();
        let all = up.iter().chain(&leaving);
        all.map(|route| route.traffic.shown())
            .fold(self.counters.past.shown(), |sum, one| sum.plus(one))
    }

    /// Sockets that live.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.sockets().len()
    }
}
