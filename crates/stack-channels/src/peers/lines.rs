//! Channels that are up, from their handshake to their loss, and what is announced on them.

use super::advertised::{Advertised, OwnListener};
use super::learned::{Announcement, Learned};
use super::output::{Line, LineId, Loss, Output, StartId, Terms};
use super::peer::{Peer, Start, Up, Verdict, judge};
use super::service::{Peers, chance};
use super::table::Origin;
use crate::class::from_wire;
use netchannel_abi::address::Address;
use netchannel_driver::Channel;
use netchannel_wire::{Class, Established, GoAwayReason};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two attempts that cross are over by then.
const SETTLED: Duration = Duration::from_secs(1);

fn is_settled(up: &Up, now: Instant) -> bool {
    now.saturating_duration_since(up.since) >= SETTLED
}

/// A transport, and bytes that came behind the handshake.
type Opened = (Box<dyn Channel>, Vec<u8>);

impl Peers {
    /// A handshake is complete: who the peer is, is proved.
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
            // Without GOAWAY: what was said on it already is not lost to the peer, but sent again.
            return self.drop_opened(number, origin, now);
        }
        let terms = Terms {
            ours: self.limits,
            theirs: established.limits,
        };
        self.meet(number, established, terms, now);
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let start = peer.start.as_ref();
        let Some(start) = start.filter(|start| start.terms == terms).map(|one| one.id) else {
            let name = &peer.name;
            if let Some(suppressed) = peer.sayings.handshake.count(now) {
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
        self.last_line += 1;
        let up = Up {
            line: Line {
                id: LineId(self.last_line),
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
            // The peer dials only what it has not: it has lost the present one, long after that came up. What waits there goes at once.
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
            // The peer has not seen this host's own attempt through: it needs no decision.
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
            self.let_part(dial, now);
        }
        let (mut channel, rest) = opened;
        channel.tune(&self.options(class, None));
        self.lines.insert(up.line.id, (number, up.line));
        match (verdict, present) {
            (Verdict::Prefer, Some(old)) => {
                self.outputs
                    .push(Output::Retire(old.line, GoAwayReason::Collision));
            }
            (Verdict::Replace, Some(old)) => self.outputs.push(Output::Cut(old.line)),
            _ => {}
        }
        let line = up.line;
        self.outputs.push(Output::Up {
            line,
            channel,
            rest,
        });
        if verdict == Verdict::Refuse {
            // The peer may have sent on it already: the data plane takes that.
            self.outputs
                .push(Output::Retire(line, GoAwayReason::Collision));
            return;
        }
        self.after_change(number, now, None);
    }

    /// Whether another peer is known to be this very host: the configuration names it twice.
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
            && let Some(suppressed) = peer.sayings.handshake.count(now)
        {
            let name = &peer.name;
            tracing::warn!(
                suppressed,
                "peers {name} and {other} are one host: remove one of them from the configuration"
            );
        }
        true
    }

    /// A channel is not wanted though its handshake was complete.
    fn drop_opened(&mut self, number: u32, origin: Origin, now: Instant) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        match origin {
            Origin::Dialled { class, number, .. } => {
                peer.dial_failed((class, number), now, &times, chance());
            }
            _ => peer.counters.refused += 1,
        }
    }

    /// Takes note of who the peer is. A new start ends the one before.
    fn meet(&mut self, number: u32, established: &Established, terms: Terms, now: Instant) {
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
        self.outputs.push(Output::Began {
            start: id,
            peer: Arc::clone(&peer.name),
            terms,
        });
    }

    /// What belonged to a start of a peer is no more.
    pub(super) fn end_start(&mut self, number: u32, now: Instant) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        for up in peer.up().collect::<Vec<_>>() {
            peer.vacate(&up, now, &times, chance());
        }
        peer.down_since = None;
        if let Some(mut start) = peer.start.take() {
            self.orphans.extend(start.learned.bury());
            self.lines.retain(|_, (_, line)| line.start != start.id);
            self.outputs.push(Output::Ended(start.id));
        }
    }

    /// The channels of a peer are others than before: announcements move, the directory follows.
    fn after_change(&mut self, number: u32, now: Instant, why: Option<&str>) {
        let own = &self.own;
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let announcing = peer.announcing();
        let advertised_on = peer.start.as_ref().and_then(|start| start.advertised.line);
        let stays = advertised_on.is_some_and(|id| peer.line(id).is_some());
        let name = Arc::clone(&peer.name);
        let Some(start) = &mut peer.start else {
            return;
        };
        match announcing {
            Some(line) if !stays => {
                let came_up = start.advertised.line.is_none();
                start.advertised.line = Some(line.id);
                self.outputs
                    .push(Output::Frames(line, start.advertised.list(own)));
                if came_up {
                    tracing::info!("peer {name} is up");
                    peer.down_since = None;
                    peer.since = Some(now);
                    peer.trouble.clear();
                    peer.backoff.succeed();
                    start.learned.touch();
                }
            }
            None if start.advertised.line.take().is_some() => {
                let why = why.unwrap_or("no channel is left");
                tracing::info!("peer {name} is down: {why}");
                why.clone_into(&mut peer.trouble);
                peer.since = Some(now);
                peer.down_since = Some(now);
                start.learned.touch();
                self.outputs.push(Output::Down(start.id));
            }
            _ => {}
        }
    }

    /// The data plane has lost a channel, or it ended.
    pub fn on_lost(&mut self, id: LineId, loss: &Loss, now: Instant) {
        let Some((number, line)) = self.lines.remove(&id) else {
            return;
        };
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        peer.counters.lost += u64::from(*loss != Loss::Parted);
        let (name, class, place) = (Arc::clone(&peer.name), line.class, line.number);
        if let Loss::Violation(what) = loss {
            peer.shun(now, &times, chance());
            if let Some(suppressed) = peer.sayings.violation.count(now) {
                tracing::warn!(suppressed, "peer {name} broke the contract: {what}");
            }
        } else if *loss != Loss::Parted
            && let Some(suppressed) = peer.sayings.channels.count(now)
        {
            tracing::info!(
                suppressed,
                "channel {class} {place} to peer {name} is lost: {loss}"
            );
        }
        let up = peer.slot_of(&line).and_then(|slot| slot.up);
        self.free(number, &line, now, &loss.to_string());
        if *loss == Loss::Stalled
            && let Some((_, at)) = up.and_then(|up| up.ends)
            && let Some(peer) = self.peers.get_mut(&number)
        {
            peer.suspect(at.ip(), now, &times);
        }
    }

    /// The peer has said GOAWAY on a channel: nothing new goes there.
    pub fn on_goaway(&mut self, id: LineId, reason: GoAwayReason, now: Instant) {
        let Some((number, line)) = self.lines.get(&id).copied() else {
            return;
        };
        if reason.code() == GoAwayReason::Retired.code()
            && let Some(peer) = self.peers.get_mut(&number)
        {
            // It has as many as it needs: to dial again would only have it retired again.
            let least = peer.settings.channels.get(from_wire(line.class)).least;
            let wanted = peer.wanted.get_mut(from_wire(line.class));
            *wanted = (*wanted).min(line.number.max(least));
        }
        if reason.code() != GoAwayReason::Ending.code() {
            return self.free(number, &line, now, reason.text());
        }
        // Its programs' connections end with it. Those of this host's are told now, not when it is back or is given up.
        self.end_start(number, now);
        if let Some(peer) = self.peers.get_mut(&number) {
            tracing::info!("peer {} is down: {}", peer.name, reason.text());
            reason.text().clone_into(&mut peer.trouble);
            peer.since = Some(now);
        }
    }

    /// A channel takes nothing any more: its slot is free.
    pub(super) fn free(&mut self, number: u32, line: &Line, now: Instant, why: &str) {
        let times = *self.times();
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let Some(up) = peer.slot_of(line).and_then(|slot| slot.up) else {
            return;
        };
        peer.vacate(&up, now, &times, chance());
        self.after_change(number, now, Some(why));
    }

    /// A peer has announced something.
    pub fn on_announcement(&mut self, from: LineId, announcement: Announcement, now: Instant) {
        let most = self.settings.limits.listeners;
        let own = &self.own.addresses;
        let Some((number, line)) = self.lines.get(&from).copied() else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        let Some(start) = peer.start.as_mut().filter(|start| start.id == line.start) else {
            return;
        };
        let before = start.learned.left_out.outside;
        let readdressed = matches!(announcement, Announcement::Addresses(..));
        start.learned.take(announcement, &peer.settings, most);
        if readdressed {
            start.learned.review(&peer.settings, own);
        }
        if start.learned.left_out.outside > before
            && let Some(suppressed) = peer.sayings.left_out.count(now)
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

    /// A listener of this host is gone.
    pub fn on_listener_gone(&mut self, number: u32) {
        if self.own.listeners.remove(&number).is_some() {
            self.announce(|advertised, own| advertised.unlisten(number, own));
        }
    }

    /// The addresses of this host besides loopback.
    pub fn on_addresses(&mut self, addresses: &[Address]) {
        if self.own.addresses == addresses {
            return;
        }
        self.own.addresses = addresses.to_vec();
        self.announce(Advertised::readdress);
        for peer in self.peers.values_mut() {
            if let Some(start) = &mut peer.start {
                start.learned.review(&peer.settings, &self.own.addresses);
            }
        }
    }

    /// Says something to every peer that is up.
    fn announce(&mut self, say: impl Fn(&mut Advertised, &super::advertised::Own) -> Vec<u8>) {
        for peer in self.peers.values_mut() {
            let line = peer.start.as_ref().and_then(|start| start.advertised.line);
            let line = line.and_then(|line| peer.line(line));
            if let (Some(line), Some(start)) = (line, &mut peer.start) {
                let bytes = say(&mut start.advertised, &self.own);
                if !bytes.is_empty() {
                    self.outputs.push(Output::Frames(line, bytes));
                }
            }
        }
    }

    /// How many channels of a class to keep up, within what is configured: the scheduler's decision.
    pub fn keep_up(&mut self, start: StartId, class: Class, count: u16, now: Instant) {
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
        let beyond = |up: &Up| up.line.number >= *peer.wanted.get(from_wire(up.line.class));
        let beyond: Vec<Line> = peer.up().filter(beyond).map(|up| up.line).collect();
        for line in beyond {
            self.outputs.push(Output::Retire(line, reason));
            self.free(number, &line, now, "it is not wanted any more");
        }
    }

    /// The daemon ends: every peer is told.
    pub fn end(&mut self, now: Instant) {
        for (number, line) in self.lines.values().copied().collect::<Vec<_>>() {
            self.outputs
                .push(Output::Retire(line, GoAwayReason::Ending));
            self.free(number, &line, now, "this daemon ends");
        }
    }
}
