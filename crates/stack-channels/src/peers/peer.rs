//! One peer: its configuration, its channels, and the known start of its daemon.

use super::advertised::Advertised;
use super::backoff::Backoff;
use super::learned::Learned;
use super::output::{ChannelInstance, ChannelRef, StartId, Terms};
use super::settings::{PeerSettings, PerClass, Times};
use crate::class::from_wire;
use netchannel_service::faults::Faults;
use netchannel_wire::{Class, HostId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// While connections wait for a lost peer: the longest delay between attempts, and the longest attempt. TCP sends a
/// lost SYN again after a second, so that an attempt succeeds within about a second of the end of the trouble.
const AWAITED_PAUSE: Duration = Duration::from_secs(1);
const AWAITED_DIAL: Duration = Duration::from_secs(2);

/// A channel that is up.
#[derive(Clone, Copy, Debug)]
pub struct Up {
    /// The channel.
    pub channel: ChannelRef,
    /// The host that dialled it.
    pub dialler: HostId,
    /// When it came up.
    pub since: Instant,
    /// The addresses of this host and of the peer.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

/// The slot of one channel: a class and a number.
#[derive(Debug, Default)]
pub struct ChannelSlot {
    /// The channel, while it takes segments.
    pub up: Option<Up>,
    /// This host's attempt to make it.
    pub dial: Option<u64>,
    /// When the last attempt began.
    pub dialled: Option<Instant>,
    /// The delay of the next attempt, while other channels are up.
    pub backoff: Backoff,
}

/// One start of the peer's daemon.
#[derive(Debug)]
pub struct Start {
    /// Its number on this host.
    pub id: StartId,
    /// The identity of the host.
    pub host: HostId,
    /// The epoch of this start.
    pub epoch: u64,
    /// The agreed limits.
    pub terms: Terms,
    /// The announcements to the peer.
    pub advertised: Advertised,
    /// The announcements of the peer.
    pub learned: Learned,
}

/// The counters of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts to dial.
    pub dialled: u64,
    /// Attempts that failed, for any reason.
    pub failed: u64,
    /// Incoming channels that did not come up.
    pub refused: u64,
    /// Channels that came up.
    pub established: u64,
    /// Channels of these that were replaced by another one of the same class and number.
    pub collisions: u64,
    /// Channels that were lost.
    pub lost: u64,
    /// Protocol violations.
    pub violations: u64,
    /// Starts of its daemon.
    pub starts: u64,
}

/// The messages about the peer in the log, limited to one per burst.
#[derive(Debug, Default)]
pub struct LogLimits {
    /// Failed attempts to dial.
    pub dial: Faults,
    /// Refused handshakes from its addresses.
    pub handshake: Faults,
    /// Protocol violations.
    pub violation: Faults,
    /// Announcements that are not allowed, or too many.
    pub left_out: Faults,
    /// Lost channels.
    pub channels: Faults,
}

/// A peer.
#[derive(Debug)]
pub struct Peer {
    /// The configuration.
    pub settings: PeerSettings,
    /// Its name.
    pub name: Arc<str>,
    /// The slots by class and number: as many as there may be channels.
    pub slots: PerClass<Vec<ChannelSlot>>,
    /// How many of them are kept up.
    pub wanted: PerClass<u16>,
    /// The known start of its daemon.
    pub start: Option<Start>,
    /// The delay of the next attempt, while no channel is up.
    pub backoff: Backoff,
    /// The delay during which the peer is refused after a protocol violation.
    pub banned: Backoff,
    /// When it last violated the protocol.
    pub violated: Option<Instant>,
    /// Selects the next of its addresses, and then of its slots.
    pub turn: usize,
    /// An address at which a channel has stalled, and until when the other addresses are preferred.
    pub suspect: Option<(IpAddr, Instant)>,
    /// Since when it has no channel while its connections were not given up.
    pub down_since: Option<Instant>,
    /// The reason why it is not up.
    pub down_reason: String,
    /// Since when it is up, or down.
    pub since: Option<Instant>,
    /// The counters.
    pub counters: Counters,
    /// The messages in the log.
    pub log_limits: LogLimits,
}

/// Both classes.
pub const CLASSES: [Class; 2] = [Class::Latency, Class::Throughput];

/// The decision about a new channel for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The slot is vacant.
    Take,
    /// The present channel is lost: the same host has dialled again.
    Replace,
    /// The new channel is kept, and the old one is retired.
    Prefer,
    /// The old channel is kept, and the new one is retired.
    Refuse,
}

/// Decides between two channels of one class and number. Both hosts come to the same result.
pub fn judge(present: Option<HostId>, dialler: HostId) -> Verdict {
    match present {
        None => Verdict::Take,
        Some(present) if present == dialler => Verdict::Replace,
        Some(present) if dialler.keeps(&present) => Verdict::Prefer,
        Some(_) => Verdict::Refuse,
    }
}

impl Peer {
    /// A peer whose daemon is not known yet.
    pub fn new(settings: PeerSettings) -> Self {
        let mut peer = Self {
            name: Arc::from(settings.name.as_str()),
            settings,
            slots: PerClass::default(),
            wanted: PerClass::default(),
            start: None,
            backoff: Backoff::default(),
            banned: Backoff::default(),
            violated: None,
            turn: 0,
            suspect: None,
            down_since: None,
            down_reason: "not tried yet".to_owned(),
            since: None,
            counters: Counters::default(),
            log_limits: LogLimits::default(),
        };
        for class in CLASSES {
            let bounds = *peer.settings.channels.get(from_wire(class));
            *peer.wanted.get_mut(from_wire(class)) = bounds.least.min(bounds.most);
            let slots = peer.slots.get_mut(from_wire(class));
            slots.resize_with(usize::from(bounds.most), ChannelSlot::default);
        }
        peer
    }

    /// A slot, if the number is allowed.
    pub fn slot(&mut self, class: Class, number: u16) -> Option<&mut ChannelSlot> {
        self.slots
            .get_mut(from_wire(class))
            .get_mut(usize::from(number))
    }

    /// The slot of a channel that is up.
    pub fn slot_of(&mut self, channel: &ChannelRef) -> Option<&mut ChannelSlot> {
        let holds = |up: Up| up.channel.instance == channel.instance;
        let slot = self.slot(channel.class, channel.number)?;
        slot.up.is_some_and(holds).then_some(slot)
    }

    /// All slots.
    pub fn all_slots(&self) -> impl Iterator<Item = &ChannelSlot> {
        CLASSES
            .into_iter()
            .flat_map(|class| self.slots.get(from_wire(class)))
    }

    /// Channels that are up.
    pub fn up(&self) -> impl Iterator<Item = Up> {
        self.all_slots().filter_map(|slot| slot.up)
    }

    /// Whether any channel is up.
    pub fn is_up(&self) -> bool {
        self.up().next().is_some()
    }

    /// The channel for announcements: the first one, of latency if there is one.
    pub fn announcing(&self) -> Option<ChannelRef> {
        self.up().next().map(|up| up.channel)
    }

    /// A channel by its id.
    pub fn channel(&self, id: ChannelInstance) -> Option<ChannelRef> {
        self.up()
            .map(|up| up.channel)
            .find(|channel| channel.instance == id)
    }

    /// The slots that must be dialled now. While no channel is up, there is one attempt at a time.
    pub fn due(&self, now: Instant) -> Vec<(Class, u16)> {
        if self.settings.addresses.is_empty() || !self.banned.is_over(now) {
            return Vec::new();
        }
        if self.is_up() {
            let due = |slot: &ChannelSlot| slot.backoff.is_over(now);
            return self
                .vacant()
                .filter(|(slot, ..)| due(slot))
                .map(name)
                .collect();
        }
        if !self.backoff.is_over(now) || self.all_slots().any(|slot| slot.dial.is_some()) {
            return Vec::new();
        }
        let rounds = self.turn / self.settings.addresses.len();
        let vacant: Vec<_> = self.vacant().map(name).collect();
        let index = rounds.checked_rem(vacant.len());
        let next = index.and_then(|index| vacant.get(index).copied());
        next.into_iter().collect()
    }

    /// The time of the next attempt, if any.
    pub fn next_dial(&self, now: Instant) -> Option<Instant> {
        if self.settings.addresses.is_empty() {
            return None;
        }
        let when = |backoff: &Backoff| backoff.until().unwrap_or(now);
        let next = if self.is_up() {
            self.vacant().map(|(slot, ..)| when(&slot.backoff)).min()
        } else if self.all_slots().any(|slot| slot.dial.is_some()) {
            None
        } else {
            self.vacant().next().map(|_| when(&self.backoff))
        };
        next.map(|next| next.max(when(&self.banned)))
    }

    /// Slots that must have a channel and have neither a channel nor an attempt.
    fn vacant(&self) -> impl Iterator<Item = (&ChannelSlot, Class, u16)> {
        CLASSES.into_iter().flat_map(move |class| {
            let slots = self
                .slots
                .get(from_wire(class))
                .iter()
                .zip(0..*self.wanted.get(from_wire(class)));
            let vacant = slots.filter(|(slot, _)| slot.up.is_none() && slot.dial.is_none());
            vacant.map(move |(slot, number)| (slot, class, number))
        })
    }

    /// The address of the next attempt.
    pub fn next_address(&self, now: Instant) -> Option<SocketAddr> {
        let addresses = &self.settings.addresses;
        let turn = self.turn.checked_rem(addresses.len())?;
        let in_turn = || addresses.iter().cycle().skip(turn).take(addresses.len());
        let suspect = self.suspect.filter(|(_, until)| *until > now);
        let trusted = in_turn().find(|to| suspect.is_none_or(|(ip, _)| ip != to.ip()));
        trusted.or_else(|| in_turn().next()).copied()
    }

    /// A channel to this address of the peer has stalled.
    pub fn suspect(&mut self, ip: IpAddr, now: Instant, times: &Times) {
        self.suspect = Some((ip, now + times.silence));
        // Its other addresses are tried at once.
        self.backoff.succeed();
        for class in CLASSES {
            let slots = self.slots.get_mut(from_wire(class));
            slots.iter_mut().for_each(|slot| slot.backoff.succeed());
        }
    }

    /// The shortest and longest delay between two attempts.
    fn pauses(&self, times: &Times) -> (Duration, Duration) {
        let most = match self.down_since {
            Some(_) => times.retry_most.min(AWAITED_PAUSE),
            None => times.retry_most,
        };
        (times.retry_least.min(most), most)
    }

    /// How long an attempt may take until its transport is connected.
    pub fn patience(&self, times: &Times) -> Duration {
        match self.down_since {
            Some(_) => times.dial.min(AWAITED_DIAL),
            None => times.dial,
        }
    }

    /// An attempt failed. The delay counts from the beginning of the attempt: an unanswered attempt has taken longer,
    /// and its SYN may have been lost just before the end of the trouble.
    pub fn dial_failed(
        &mut self,
        (class, number): (Class, u16),
        now: Instant,
        times: &Times,
        random: u32,
    ) {
        self.counters.failed += 1;
        let bounds = self.pauses(times);
        let is_up = self.is_up();
        let mut began = now;
        if let Some(slot) = self.slot(class, number) {
            slot.dial = None;
            began = slot.dialled.take().unwrap_or(now);
            if is_up {
                slot.backoff.fail(began, bounds, random);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if !is_up {
            self.backoff.fail(began, bounds, random);
        }
    }

    /// A channel has left its slot. A channel that was up for long is made again at once.
    pub fn vacate(&mut self, up: &Up, now: Instant, times: &Times, random: u32) {
        let steady = now.saturating_duration_since(up.since) >= steady(times);
        let bounds = self.pauses(times);
        if let Some(slot) = self.slot(up.channel.class, up.channel.number) {
            slot.up = None;
            if steady {
                slot.backoff.succeed();
            } else {
                slot.backoff.fail(now, bounds, random);
            }
        }
        if !self.is_up() {
            if steady {
                self.backoff.succeed();
            } else {
                self.backoff.fail(now, bounds, random);
            }
        }
    }

    /// The peer violated the protocol: it is refused, for longer each time.
    pub fn ban(&mut self, now: Instant, times: &Times, random: u32) {
        self.counters.violations += 1;
        let forgiven = 4 * times.retry_most;
        let long_ago = |then: Instant| now.saturating_duration_since(then) > forgiven;
        if self.violated.is_some_and(long_ago) {
            self.banned.succeed();
        }
        self.violated = Some(now);
        self.banned
            .fail(now, (times.retry_least, times.retry_most), random);
    }
}

fn name((_, class, number): (&ChannelSlot, Class, u16)) -> (Class, u16) {
    (class, number)
}

/// A channel that was up for this long was no failure.
fn steady(times: &Times) -> Duration {
    (10 * times.retry_least).min(times.retry_most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::settings::Bounds;
    use netchannel_wire::Key;

    #[test]
    fn an_attempt_that_took_long_is_followed_by_the_next_one() {
        let bounds = Bounds { least: 1, most: 1 };
        let bytes: [u8; 32] = std::array::from_fn(|place| u8::try_from(place).unwrap());
        let mut peer = Peer::new(PeerSettings {
            name: "b".to_owned(),
            addresses: vec!["10.0.0.2:9999".parse().unwrap()],
            prefixes: Vec::new(),
            key: Arc::new(Key::from_bytes(&bytes).unwrap()),
            channels: PerClass {
                latency: bounds,
                throughput: bounds,
            },
        });
        let (times, start) = (Times::default(), Instant::now());
        // As long as attempts fail at once, the pauses double.
        for _ in 0..3 {
            peer.dial_failed((Class::Latency, 0), start, &times, 0);
        }
        assert!(peer.due(start + Duration::from_millis(399)).is_empty());
        let begun = start + Duration::from_millis(400);
        assert_eq!(peer.due(begun).len(), 1);
        peer.slot(Class::Latency, 0).unwrap().dialled = Some(begun);
        let failed = begun + Duration::from_secs(2);
        peer.dial_failed((Class::Latency, 0), failed, &times, 0);
        assert_eq!(peer.due(failed).len(), 1);
    }

    #[test]
    fn both_hosts_decide_for_the_same_channel() {
        let (low, high) = (HostId([1; 16]), HostId([2; 16]));
        // Each host sees the two in another order.
        assert_eq!(judge(Some(low), high), Verdict::Refuse);
        assert_eq!(judge(Some(high), low), Verdict::Prefer);
        assert_eq!(judge(Some(high), high), Verdict::Replace);
        assert_eq!(judge(None, high), Verdict::Take);
    }
}
