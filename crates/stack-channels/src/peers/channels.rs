//! Channels that are up, from their handshake to their loss, and the announcements on them.

use super::advertised::{Advertised, OwnListener};
use super::learned::{Announcement, Learned};
use super::output::{ChannelInstance, ChannelRef, Loss, Output, StartId, Terms};
use super::peer::{Peer, Start, Up, Verdict, judge};
use super::service::{Peers, random_number};
use super::table::Origin;
use crate::class::from_wire;
use netchannel_abi::address::Address;
use netchannel_driver::Channel;
use netchannel_wire::{Class, Established, GoAwayReason};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time two attempts that cross each other have been decided.
const SETTLED: Duration = Duration::from_secs(1);

fn is_settled(up: &Up, now: Instant) -> bool {
    now.saturating_duration_since(up.since) >= SETTLED
}

/// A transport, and bytes that followed the handshake.
type Opened = (Box<dyn Channel>, Vec<u8>);

impl Peers {
    /// A handshake is complete: the identity of the peer is proved.
    pub(super) fn establish(
        &mut self,
        origin: Origin,
        established: &Established,
        opened: Opened,
        now: Instant,
    ) {
        let (Origin::Dialled { peer: number, .. } | Origin::Accepted { peer: number }) = origin
        else {
            return;
        };
        let class = established.class;
        let place = u16::try_from(established.number).unwrap_or(u16::MAX);
        if let Some(peer) = self.peers.get_mut(&number)
            && let Origin::Dialled { .. } = origin
            && let Some(slot) = peer.slot(class, place)
        {
            slot.dial = None;
        }
        if self.is_other_peer(number, established, now) {
            // Without GOAWAY the peer sends again what it has sent on this channel already.
            return self.drop_opened(number, origin, now);
        }
        let terms = Terms {
            ours: self.limits,
            theirs: established.limits,
        };
        self.record_start(number, established, terms, now);
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let start = peer.start.as_ref();
        let Some(start) = start.filter(|start| start.terms == terms).map(|one| one.id) else {
            let name = &peer.name;
            if let Some(suppressed) = peer.log_limits.handshake.count(now) {
                tracing::warn!(
                    suppressed,
                    "peer {name} says other limits than before: refused"
                );
            }
            return self.drop_opened(number, origin, now);
        };
        let Some(slot) = peer.slot(class, place) else {
            return;
        };
        self.last_channel += 1;
        let up = Up {
            channel: ChannelRef {
                instance: ChannelInstance(self.last_channel),
                start,
                class,
                number: place,
            },
            dialler: established.dialler,
            since: now,
            ends: opened.0.ends(),
        };
        let present = slot.up;
        let verdict = match judge(present.map(|up| up.dialler), up.dialler) {
            // The peer dials only channels that it does not have: it has lost the present one, long after that came up.
            // Its frames are sent again at once.
            Verdict::Refuse | Verdict::Prefer
                if up.dialler != self.host && present.is_some_and(|up| is_settled(&up, now)) =>
            {
                Verdict::Replace
            }
            verdict => verdict,
        };
        let dial = slot.dial;
        if verdict != Verdict::Refuse {
            slot.up = Some(up);
            // The peer has not completed this host's own attempt: no decision between the two is needed.
            slot.dial = None;
        }
        peer.counters.established += 1;
        peer.counters.collisions += u64::from(verdict != Verdict::Take);
        tracing::debug!(
            peer = &*peer.name,
            ?class,
            number = place,
            dialled = up.dialler == self.host,
            ?verdict,
            "a channel is up"
        );
        if let Some(dial) = dial
            && verdict != Verdict::Refuse
            && let Some(entry) = self.table.get_mut(dial)
        {
            entry.half_open.refuse(GoAwayReason::Collision);
            self.linger(dial, now);
        }
        let (mut transport, rest) = opened;
        transport.tune(&self.options(class, None));
        self.channels
            .insert(up.channel.instance, (number, up.channel));
        match (verdict, present) {
            (Verdict::Prefer, Some(old)) => {
                self.outputs
                    .push(Output::Retire(old.channel, GoAwayReason::Collision));
            }
            (Verdict::Replace, Some(old)) => self.outputs.push(Output::Close(old.channel)),
            _ => {}
        }
        let channel = up.channel;
        self.outputs.push(Output::Up {
            channel,
            transport,
            rest,
        });
        if verdict == Verdict::Refuse {
            // The peer may have sent on it already: the data plane reads that.
            self.outputs
                .push(Output::Retire(channel, GoAwayReason::Collision));
            return;
        }
        self.on_channels_changed(number, now, None);
    }

    /// Whether another peer is known to be the same host: the configuration names it twice.
    fn is_other_peer(&mut self, number: u32, established: &Established, now: Instant) -> bool {
        let is_same = |peer: &Peer| {
            let start = peer.start.as_ref();
            start.is_some_and(|start| start.host == established.peer) && peer.is_up()
        };
        let mut others = self.peers.iter().filter(|(other, _)| **other != number);
        let Some(other) = others.find(|(_, peer)| is_same(peer)) else {
            return false;
        };
        let other = Arc::clone(&other.1.name);
        if let Some(peer) = self.peers.get_mut(&number)
            && let Some(suppressed) = peer.log_limits.handshake.count(now)
        {
            let name = &peer.name;
            tracing::warn!(
                suppressed,
                "peers {name} and {other} are one host: remove one of them from the configuration"
            );
        }
        true
    }

    /// Drops a channel although its handshake is complete.
    fn drop_opened(&mut self, number: u32, origin: Origin, now: Instant) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        match origin {
            Origin::Dialled { class, number, .. } => {
                peer.dial_failed((class, number), now, &times, random_number());
            }
            _ => peer.counters.refused += 1,
        }
    }

    /// Records the identity of the peer. A new start ends the former one.
    fn record_start(&mut self, number: u32, established: &Established, terms: Terms, now: Instant) {
        let Some(peer) = self.peers.get(&number) else {
            return;
        };
        let (host, epoch) = (established.peer, established.epoch);
        let known = peer.start.as_ref();
        if known.is_some_and(|start| (start.host, start.epoch) == (host, epoch)) {
            return;
        }
        if known.is_some() {
            tracing::info!("the daemon of peer {} began anew", peer.name);
            self.end_start(number, now);
        }
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        self.last_start += 1;
        let id = StartId(self.last_start);
        peer.counters.starts += 1;
        peer.start = Some(Start {
            id,
            host,
            epoch,
            terms,
            advertised: Advertised::default(),
            learned: Learned::default(),
        });
        self.outputs.push(Output::Started {
            start: id,
            peer: Arc::clone(&peer.name),
            terms,
        });
    }

    /// Ends a start of a peer with all its channels and entries.
    pub(super) fn end_start(&mut self, number: u32, now: Instant) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        for up in peer.up().collect::<Vec<_>>() {
            peer.vacate(&up, now, &times, random_number());
        }
        peer.down_since = None;
        if let Some(mut start) = peer.start.take() {
            self.orphaned_entries.extend(start.learned.take_entries());
            self.channels
                .retain(|_, (_, channel)| channel.start != start.id);
            self.outputs.push(Output::Ended(start.id));
        }
    }

    /// The set of a peer's channels has changed: moves the announcements to another channel, and updates the directory.
    fn on_channels_changed(&mut self, number: u32, now: Instant, why: Option<&str>) {
        let own = &self.own;
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let announcing = peer.announcing();
        let advertised_on = peer
            .start
            .as_ref()
            .and_then(|start| start.advertised.channel);
        let stays = advertised_on.is_some_and(|id| peer.channel(id).is_some());
        let name = Arc::clone(&peer.name);
        let Some(start) = &mut peer.start else {
            return;
        };
        match announcing {
            Some(channel) if !stays => {
                let came_up = start.advertised.channel.is_none();
                start.advertised.channel = Some(channel.instance);
                self.outputs
                    .push(Output::Frames(channel, start.advertised.list(own)));
                if came_up {
                    tracing::info!("peer {name} is up");
                    peer.down_since = None;
                    peer.since = Some(now);
                    peer.down_reason.clear();
                    peer.backoff.succeed();
                    start.learned.mark_all_dirty();
                }
            }
            None if start.advertised.channel.take().is_some() => {
                let why = why.unwrap_or("no channel is left");
                tracing::info!("peer {name} is down: {why}");
                why.clone_into(&mut peer.down_reason);
                peer.since = Some(now);
                peer.down_since = Some(now);
                start.learned.mark_all_dirty();
                self.outputs.push(Output::Down(start.id));
            }
            _ => {}
        }
    }

    /// The data plane has lost a channel, or the channel has ended.
    pub fn on_lost(&mut self, id: ChannelInstance, loss: &Loss, now: Instant) {
        let Some((number, channel)) = self.channels.remove(&id) else {
            return;
        };
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        peer.counters.lost += u64::from(*loss != Loss::Completed);
        let (name, class, place) = (Arc::clone(&peer.name), channel.class, channel.number);
        if let Loss::Violation(what) = loss {
            peer.ban(now, &times, random_number());
            if let Some(suppressed) = peer.log_limits.violation.count(now) {
                tracing::warn!(suppressed, "peer {name} broke the contract: {what}");
            }
        } else if *loss != Loss::Completed
            && let Some(suppressed) = peer.log_limits.channels.count(now)
        {
            tracing::info!(
                suppressed,
                "channel {class} {place} to peer {name} is lost: {loss}"
            );
        }
        let up = peer.slot_of(&channel).and_then(|slot| slot.up);
        self.vacate_slot(number, &channel, now, &loss.to_string());
        if *loss == Loss::Stalled
            && let Some((_, at)) = up.and_then(|up| up.ends)
            && let Some(peer) = self.peers.get_mut(&number)
        {
            peer.suspect(at.ip(), now, &times);
        }
    }

    /// The peer has sent GOAWAY on a channel: no new segments take it.
    pub fn on_goaway(&mut self, id: ChannelInstance, reason: GoAwayReason, now: Instant) {
        let Some((number, channel)) = self.channels.get(&id).copied() else {
            return;
        };
        if reason.code() == GoAwayReason::Retired.code()
            && let Some(peer) = self.peers.get_mut(&number)
        {
            // The peer has as many channels as it needs. Another one would be retired again.
            let least = peer.settings.channels.get(from_wire(channel.class)).least;
            let wanted = peer.wanted.get_mut(from_wire(channel.class));
            *wanted = (*wanted).min(channel.number.max(least));
        }
        if reason.code() != GoAwayReason::Ending.code() {
            return self.vacate_slot(number, &channel, now, reason.text());
        }
        // The connections of its programs end with it. The programs of this host are notified now, not when the peer is
        // back or is given up.
        self.end_start(number, now);
        if let Some(peer) = self.peers.get_mut(&number) {
            tracing::info!("peer {} is down: {}", peer.name, reason.text());
            reason.text().clone_into(&mut peer.down_reason);
            peer.since = Some(now);
        }
    }

    /// A channel takes no new segments: its slot becomes vacant.
    pub(super) fn vacate_slot(
        &mut self,
        number: u32,
        channel: &ChannelRef,
        now: Instant,
        why: &str,
    ) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let Some(up) = peer.slot_of(channel).and_then(|slot| slot.up) else {
            return;
        };
        peer.vacate(&up, now, &times, random_number());
        self.on_channels_changed(number, now, Some(why));
    }

    /// Handles an announcement of a peer.
    pub fn on_announcement(
        &mut self,
        from: ChannelInstance,
        announcement: Announcement,
        now: Instant,
    ) {
        let most = self.settings.limits.listeners;
        let own = &self.own.addresses;
        let Some((number, channel)) = self.channels.get(&from).copied() else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let Some(start) = peer
            .start
            .as_mut()
            .filter(|start| start.id == channel.start)
        else {
            return;
        };
        let before = start.learned.left_out.outside;
        let readdressed = matches!(announcement, Announcement::Addresses(..));
        start.learned.take(announcement, &peer.settings, most);
        if readdressed {
            start.learned.review(&peer.settings, own);
        }
        if start.learned.left_out.outside > before
            && let Some(suppressed) = peer.log_limits.left_out.count(now)
        {
            let name = &peer.name;
            tracing::info!(
                suppressed,
                "peer {name} announces listeners outside its prefixes: connections to them go over kernel TCP"
            );
        }
    }

    /// A program of this host listens.
    pub fn on_listener(&mut self, number: u32, listener: OwnListener) {
        self.own.listeners.insert(number, listener);
        self.announce(|advertised, own| advertised.listen(number, &listener, own));
    }

    /// A listener of this host is closed.
    pub fn on_listener_removed(&mut self, number: u32) {
        if self.own.listeners.remove(&number).is_some() {
            self.announce(|advertised, own| advertised.unlisten(number, own));
        }
    }

    /// Sets the addresses of this host, besides loopback.
    pub fn on_addresses(&mut self, addresses: &[Address]) {
        if self.own.addresses == addresses {
            return;
        }
        self.own.addresses = addresses.to_vec();
        self.announce(Advertised::announce_addresses);
        for peer in self.peers.values_mut() {
            if let Some(start) = &mut peer.start {
                start.learned.review(&peer.settings, &self.own.addresses);
            }
        }
    }

    /// Sends an announcement to every peer that is up.
    fn announce(&mut self, say: impl Fn(&mut Advertised, &super::advertised::Own) -> Vec<u8>) {
        for peer in self.peers.values_mut() {
            let channel = peer
                .start
                .as_ref()
                .and_then(|start| start.advertised.channel);
            let channel = channel.and_then(|channel| peer.channel(channel));
            if let (Some(channel), Some(start)) = (channel, &mut peer.start) {
                let bytes = say(&mut start.advertised, &self.own);
                if !bytes.is_empty() {
                    self.outputs.push(Output::Frames(channel, bytes));
                }
            }
        }
    }

    /// Sets how many channels of a class are kept up, within the configured bounds. The scheduler decides this number.
    pub fn set_channel_count(&mut self, start: StartId, class: Class, count: u16, now: Instant) {
        let is_it = |peer: &Peer| peer.start.as_ref().is_some_and(|one| one.id == start);
        let found = self.peers.iter().find(|(_, peer)| is_it(peer));
        if let Some(number) = found.map(|(number, _)| *number) {
            if let Some(peer) = self.peers.get_mut(&number) {
                let bounds = *peer.settings.channels.get(from_wire(class));
                *peer.wanted.get_mut(from_wire(class)) = count.max(bounds.least).min(bounds.most);
            }
            self.retire_beyond(number, GoAwayReason::Retired, now);
        }
    }

    /// Retires channels that are not wanted any more.
    pub(super) fn retire_beyond(&mut self, number: u32, reason: GoAwayReason, now: Instant) {
        let Some(peer) = self.peers.get(&number) else {
            return;
        };
        let beyond = |up: &Up| up.channel.number >= *peer.wanted.get(from_wire(up.channel.class));
        let beyond: Vec<ChannelRef> = peer.up().filter(beyond).map(|up| up.channel).collect();
        for channel in beyond {
            self.outputs.push(Output::Retire(channel, reason));
            self.vacate_slot(number, &channel, now, "it is not wanted any more");
        }
    }

    /// The daemon shuts down: tells every peer.
    pub fn end(&mut self, now: Instant) {
        for (number, channel) in self.channels.values().copied().collect::<Vec<_>>() {
            self.outputs
                .push(Output::Retire(channel, GoAwayReason::Ending));
            self.vacate_slot(number, &channel, now, "this daemon ends");
        }
    }
}
