//! Channels that are being made: dialled, accepted, in their handshake, refused.

use super::half_open::{Admission, Failure, HalfOpen, Progress};
use super::service::{Peers, random_number};
use super::settings::PerClass;
use super::table::Origin;
use crate::class::from_wire;
use netchannel_driver::{Channel, Options};
use netchannel_wire::{Class, GoAwayReason, Initiator, Refused};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Channels that are accepted before other work has its turn.
const BATCH: usize = 16;
/// How long a refused host has to read the reason.
const REFUSED_LINGER: Duration = Duration::from_secs(1);

impl Peers {
    /// Accepts channels at a listening socket.
    pub(super) fn accept(&mut self, listening: u64, now: Instant) {
        for _ in 0..BATCH {
            match self.acceptors.accept(listening, self.table.poll(), now) {
                Ok(None) => return,
                Ok(Some((channel, from))) => self.admit(channel, from, now),
                Err(error) => {
                    self.strangers.exhausted += 1;
                    if let Some(suppressed) = self.log_limits.exhausted.count(now) {
                        tracing::warn!(
                            suppressed,
                            "cannot take channels of other hosts for a moment ({error})"
                        );
                    }
                    return;
                }
            }
        }
    }

    /// Another host has dialled.
    fn admit(&mut self, channel: Box<dyn Channel>, from: SocketAddr, now: Instant) {
        let Some(number) = self.peer_from(from.ip()) else {
            self.strangers.refused += 1;
            let reason = GoAwayReason::UnknownPeer.text();
            *self.refused.entry(reason).or_default() += 1;
            if let Some(suppressed) = self.log_limits.stranger.count(now) {
                tracing::warn!(
                    suppressed,
                    "{from} is the address of no peer, and is refused"
                );
            }
            self.refuse_stranger(
                HalfOpen::refused(channel, GoAwayReason::UnknownPeer),
                from,
                now,
            );
            return;
        };
        let Some(peer) = self.peers.get(&number) else {
            return;
        };
        if !peer.banned.is_over(now) {
            self.refuse_stranger(
                HalfOpen::refused(channel, GoAwayReason::Violation),
                from,
                now,
            );
            return;
        }
        let admission = self.admission(number);
        let Ok(identity) = self.identity() else {
            return;
        };
        // A genuine peer needs a round trip. The oldest channel has had the most time.
        while let Some(oldest) = self
            .table
            .excess_accepted(self.settings.limits.half_open.max(1))
        {
            self.table.remove(oldest);
            self.strangers.displaced += 1;
            if let Some(suppressed) = self.log_limits.displaced.count(now) {
                tracing::warn!(
                    suppressed,
                    "too many channels wait for their handshake: the oldest are closed; the last came from {from}"
                );
            }
        }
        let half_open = HalfOpen::accepted(channel, identity, admission);
        let origin = Origin::Accepted { peer: number };
        let deadline = now + self.times().handshake;
        if let Ok(name) = self.table.insert(half_open, origin, from, deadline) {
            // HELLO may have arrived already.
            self.advance(name, now);
        }
    }

    /// The peer of a channel that comes from an address: the peer that is dialled there, or else a peer whose prefixes
    /// contain the address.
    fn peer_from(&self, source: IpAddr) -> Option<u32> {
        let mut named = self.peers.iter();
        let named = named.find(|(_, peer)| peer.settings.is_at(source));
        let mut within = self.peers.iter();
        let within = || within.find(|(_, peer)| peer.settings.may_announce(source));
        named.or_else(within).map(|(number, _)| *number)
    }

    fn admission(&self, number: u32) -> Admission {
        let Some(peer) = self.peers.get(&number) else {
            return Admission::default();
        };
        let channels = &peer.settings.channels;
        Admission {
            key: Some(Arc::clone(&peer.settings.key)),
            most: PerClass {
                latency: channels.latency.most,
                throughput: channels.throughput.most,
            },
        }
    }

    /// Dials all channels that are due.
    pub(super) fn dial(&mut self, now: Instant) {
        let due: Vec<(u32, (Class, u16))> = self
            .peers
            .iter()
            .flat_map(|(number, peer)| peer.due(now).into_iter().map(|slot| (*number, slot)))
            .collect();
        for (number, (class, slot)) in due {
            self.dial_slot(number, class, slot, now);
        }
    }

    fn dial_slot(&mut self, number: u32, class: Class, slot: u16, now: Instant) {
        let admission = self.admission(number);
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let Some(to) = peer.next_address(now) else {
            return;
        };
        peer.counters.dialled += 1;
        let deadline = now + peer.patience(&self.settings.times);
        let options = self.options(class, Some(to.ip()));
        let dialled = self.identity().map_err(std::io::Error::from);
        let dialled = dialled.and_then(|identity| {
            let channel = self.transport.connect(to, &options)?;
            let initiator = Initiator::new(identity, class, slot.into());
            let half_open = HalfOpen::dialled(channel, initiator, admission);
            let origin = Origin::Dialled {
                peer: number,
                class,
                number: slot,
            };
            Ok(self.table.insert(half_open, origin, to, deadline)?)
        });
        match dialled {
            Ok(name) => {
                let peer = self.peers.get_mut(&number);
                if let Some(slot) = peer.and_then(|peer| peer.slot(class, slot)) {
                    slot.dial = Some(name);
                    slot.dialled = Some(now);
                }
                // A transport within the host may be connected already.
                self.advance(name, now);
            }
            Err(error) => {
                self.dial_failed(number, (class, slot), to, &Failure::Transport(error), now);
            }
        }
    }

    /// The options of a channel's transport, both for dialled and for accepted ones.
    pub(super) fn options(&self, class: Class, to: Option<IpAddr>) -> Options {
        Options {
            unanswered: Some(self.times().silence),
            from: to.and_then(|to| self.settings.source(to)),
            ..self.settings.options.get(from_wire(class)).clone()
        }
    }

    /// A channel that is not open yet can go on.
    pub(super) fn advance(&mut self, name: u64, now: Instant) {
        let handshake = self.times().handshake;
        let Some(entry) = self.table.get_mut(name) else {
            return;
        };
        let was_refused = entry.half_open.is_refused();
        let progress = entry.half_open.advance();
        let dialled = matches!(entry.origin, Origin::Dialled { .. });
        if dialled && !entry.connected && !entry.half_open.has_unsent() {
            entry.connected = true;
            entry.deadline = now + handshake;
        }
        match progress {
            Progress::Waits => self.table.watch(name),
            Progress::Closed => drop(self.table.remove(name)),
            Progress::Open(established, rest) => {
                if let Some(entry) = self.table.remove(name) {
                    let channel = entry.half_open.into_channel();
                    self.establish(entry.origin, &established, (channel, rest), now);
                }
            }
            Progress::Failed(failure) => {
                let (origin, address) = (entry.origin, entry.address);
                let is_refused = entry.half_open.is_refused();
                if is_refused && !was_refused {
                    self.linger(name, now);
                } else {
                    self.table.remove(name);
                }
                self.failed(origin, address, &failure, now);
            }
        }
    }

    /// A handshake has timed out.
    pub(super) fn time_out(&mut self, name: u64, now: Instant) {
        let Some(entry) = self.table.get_mut(name) else {
            return;
        };
        let (origin, address, connected) = (entry.origin, entry.address, entry.connected);
        let came = matches!(origin, Origin::Accepted { .. });
        if came || (connected && origin != Origin::Refused) {
            entry.half_open.refuse(GoAwayReason::TimedOut);
            self.linger(name, now);
        } else {
            self.table.remove(name);
        }
        self.failed(origin, address, &Failure::TimedOut, now);
    }

    /// Refuses a channel that was not in the table yet.
    fn refuse_stranger(&mut self, half_open: HalfOpen, from: SocketAddr, now: Instant) {
        let added = self
            .table
            .insert(half_open, Origin::Refused, from, now + REFUSED_LINGER);
        if let Ok(name) = added {
            self.linger(name, now);
            self.advance(name, now);
        }
    }

    /// A channel was refused: it stays until the other end has read the reason, or until there are too many of them.
    pub(super) fn linger(&mut self, name: u64, now: Instant) {
        if let Some(entry) = self.table.get_mut(name) {
            entry.origin = Origin::Refused;
            entry.deadline = now + REFUSED_LINGER;
        }
        self.table.watch(name);
        while let Some(oldest) = self.table.excess_refused() {
            self.table.remove(oldest);
        }
    }

    fn failed(&mut self, origin: Origin, address: SocketAddr, failure: &Failure, now: Instant) {
        match origin {
            Origin::Refused => {}
            Origin::Dialled {
                peer,
                class,
                number,
            } => self.dial_failed(peer, (class, number), address, failure, now),
            Origin::Accepted { peer } => {
                let Some(peer) = self.peers.get_mut(&peer) else {
                    return;
                };
                peer.counters.refused += 1;
                let reason = failure.reason();
                let reason = reason.map_or("the other end went away", GoAwayReason::text);
                *self.refused.entry(reason).or_default() += 1;
                let quiet = is_collision(failure) || matches!(failure, Failure::Ended);
                if quiet {
                    return;
                }
                if !peer.is_up() {
                    peer.down_reason =
                        format!("a channel from {address} did not come up: {failure}");
                }
                if let Some(suppressed) = peer.log_limits.handshake.count(now) {
                    let name = &peer.name;
                    tracing::warn!(
                        suppressed,
                        "a channel from {address}, an address of peer {name}, did not come up: {failure}"
                    );
                }
            }
        }
    }

    fn dial_failed(
        &mut self,
        number: u32,
        slot: (Class, u16),
        address: SocketAddr,
        failure: &Failure,
        now: Instant,
    ) {
        let times = *self.times();
        let source = self.settings.source(address.ip());
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        peer.dial_failed(slot, now, &times, random_number());
        if is_collision(failure) {
            return;
        }
        // With a bound address the kernel does not choose the route: the other host may be on another one.
        let from = source.map_or_else(String::new, |source| format!(" from {source}"));
        let failure = netchannel_control::plain(&failure.to_string());
        if !peer.is_up() {
            peer.down_reason = format!("cannot reach {address}{from}: {failure}");
        }
        if let Some(suppressed) = peer.log_limits.dial.count(now) {
            let name = &peer.name;
            tracing::warn!(
                suppressed,
                "cannot reach peer {name} at {address}{from}: {failure}"
            );
        }
    }
}

/// Whether the attempt failed because both hosts dialled.
const fn is_collision(failure: &Failure) -> bool {
    let collision = GoAwayReason::Collision;
    matches!(failure, Failure::Refused(Refused::GoneAway(reason)) if reason.code() == collision.code())
}
