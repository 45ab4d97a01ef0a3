//! One peer: what is configured, which channels it has, and which start of its daemon it is.

use super::advertised::Advertised;
use super::backoff::Backoff;
use super::learned::Learned;
use super::output::{Line, LineId, StartId, Terms};
use super::settings::{PeerSettings, PerClass, Times};
use crate::class::from_wire;
use netchannel_service::faults::Faults;
use netchannel_wire::{Class, HostId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// While connections wait for a peer that was lost: the longest pause between attempts, and the longest attempt. A question of TCP that
/// is lost is asked again after a second, so that one comes through within about a second of the end of the trouble.
const AWAITED_PAUSE: Duration = Duration::from_secs(1);
const AWAITED_DIAL: Duration = Duration::from_secs(2);

/// A channel that is up.
#[derive(Clone, Copy, Debug)]
pub struct Up {
    /// Which.
    pub line: Line,
    /// Who dialled it.
    pub dialler: HostId,
    /// Since when.
    pub since: Instant,
    /// Own address, and the peer's.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

/// The place of one channel: its class and number.
#[derive(Debug, Default)]
pub struct ChannelSlot {
    /// The channel, while it takes segments.
    pub up: Option<Up>,
    /// This host's attempt to make it.
    pub dial: Option<u64>,
    /// When the last one began.
    pub dialled: Option<Instant>,
    /// When to try again, while others are up.
    pub backoff: Backoff,
}

/// One start of the peer's daemon.
#[derive(Debug)]
pub struct Start {
    /// Its name on this host.
    pub id: StartId,
    /// Who it is.
    pub host: HostId,
    /// Which start of it.
    pub epoch: u64,
    /// What was agreed.
    pub terms: Terms,
    /// What it was told.
    pub advertised: Advertised,
    /// What it has told.
    pub learned: Learned,
}

/// What happened with a peer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts to dial.
    pub dialled: u64,
    /// Those that failed, in any way.
    pub failed: u64,
    /// Channels that came in and did not come up.
    pub refused: u64,
    /// Channels that came up.
    pub established: u64,
    /// Of these, those that gave way to another of the same class and number.
    pub collisions: u64,
    /// Channels that were lost.
    pub lost: u64,
    /// Times that it broke the contract.
    pub violations: u64,
    /// Times that its daemon began anew.
    pub starts: u64,
}

/// What is said of it in the log, once per burst.
#[derive(Debug, Default)]
pub struct Sayings {
    /// It can not be dialled.
    pub dial: Faults,
    /// What comes from its address is refused.
    pub handshake: Faults,
    /// It breaks the contract.
    pub violation: Faults,
    /// It announces what it may not, or too much.
    pub left_out: Faults,
    /// Channels come and go.
    pub channels: Faults,
}

/// A peer.
#[derive(Debug)]
pub struct Peer {
    /// What is configured.
    pub settings: PeerSettings,
    /// Its name.
    pub name: Arc<str>,
    /// Channels by class and number; as many as may be.
    pub slots: PerClass<Vec<ChannelSlot>>,
    /// How many of them are kept up.
    pub wanted: PerClass<u16>,
    /// Its daemon, once it was met.
    pub start: Option<Start>,
    /// When to dial again, while nothing is up.
    pub backoff: Backoff,
    /// Until when it is kept away, having broken the contract.
    pub shunned: Backoff,
    /// When it broke it last.
    pub violated: Option<Instant>,
    /// Which of its addresses, and then of its slots, is next.
    pub turn: usize,
    /// An address at which a channel has stalled, and until when the others are preferred.
    pub suspect: Option<(IpAddr, Instant)>,
    /// Since when it has no channel, and its connections have not been given up.
    pub down_since: Option<Instant>,
    /// Why it is not up.
    pub trouble: String,
    /// Since when it is up, or is not.
    pub since: Option<Instant>,
    /// Counters.
    pub counters: Counters,
    /// The log.
    pub sayings: Sayings,
}

/// Both classes.
pub const CLASSES: [Class; 2] = [Class::Latency, Class::Throughput];

/// What to do with a channel of a slot that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The slot is free.
    Take,
    /// The one that is there was lost, as its dialler has seen.
    Replace,
    /// The new one is kept, and the old one is told.
    Prefer,
    /// The old one is kept, and the new one is told.
    Refuse,
}

/// Decides between two channels of one class and number; both hosts come to the same result.
pub fn judge(present: Option<HostId>, dialler: HostId) -> Verdict {
    match present {
        None => Verdict::Take,
        Some(present) if present == dialler => Verdict::Replace,
        Some(present) if dialler.keeps(&present) => Verdict::Prefer,
        Some(_) => Verdict::Refuse,
    }
}

impl Peer {
    /// A peer that was not met.
    pub fn new(settings: PeerSettings) -> Self {
        let mut peer = Self {
            name: Arc::from(settings.name.as_str()),
            settings,
            slots: PerClass::default(),
            wanted: PerClass::default(),
            start: None,
            backoff: Backoff::default(),
            shunned: Backoff::default(),
            violated: None,
            turn: 0,
            suspect: None,
            down_since: None,
            trouble: "not tried yet".to_owned(),
            since: None,
            counters: Counters::default(),
            sayings: Sayings::default(),
        };
        for class in CLASSES {
            let bounds = *peer.settings.channels.get(from_wire(class));
            *peer.wanted.get_mut(from_wire(class)) = bounds.least.min(bounds.most);
            let slots = peer.slots.get_mut(from_wire(class));
            slots.resize_with(usize::from(bounds.most), ChannelSlot::default);
        }
        peer
    }

    /// A slot, if there may be one.
    pub fn slot(&mut self, class: Class, number: u16) -> Option<&mut ChannelSlot> {
        self.slots
            .get_mut(from_wire(class))
            .get_mut(usize::from(number))
    }

    /// The slot of a channel that is up.
    pub fn slot_of(&mut self, line: &Line) -> Option<&mut ChannelSlot> {
        let holds = |up: Up| up.line.id == line.id;
        let slot = self.slot(line.class, line.number)?;
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

    /// The channel that announcements take: the first, of latency if there is one.
    pub fn announcing(&self) -> Option<Line> {
        self.up().next().map(|up| up.line)
    }

    /// A channel by its number.
    pub fn line(&self, id: LineId) -> Option<Line> {
        self.up().map(|up| up.line).find(|line| line.id == id)
    }

    /// The slots that are to be dialled now. While nothing is up, one attempt at a time.
    pub fn due(&self, now: Instant) -> Vec<(Class, u16)> {
        if self.settings.addresses.is_empty() || !self.shunned.is_over(now) {
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

    /// When the next is to be dialled, if any.
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
        next.map(|next| next.max(when(&self.shunned)))
    }

    /// Slots that are to have a channel, and for which there is not even an attempt.
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

    /// Where to dial next.
    pub fn next_address(&self, now: Instant) -> Option<SocketAddr> {
        let addresses = &self.settings.addresses;
        let turn = self.turn.checked_rem(addresses.len())?;
        let in_turn = || addresses.iter().cycle().skip(turn).take(addresses.len());
        let suspect = self.suspect.filter(|(_, until)| *until > now);
        let trusted = in_turn().find(|to| suspect.is_none_or(|(ip, _)| ip != to.ip()));
        trusted.or_else(|| in_turn().next()).copied()
    }

    /// A channel has stalled that led to this address of the peer.
    pub fn suspect(&mut self, ip: IpAddr, now: Instant, times: &Times) {
        self.suspect = Some((ip, now + times.silence));
        // Its other addresses are tried at once.
        self.backoff.succeed();
        for class in CLASSES {
            let slots = self.slots.get_mut(from_wire(class));
            slots.iter_mut().for_each(|slot| slot.backoff.succeed());
        }
    }

    /// Least and longest pause between two attempts.
    fn pauses(&self, times: &Times) -> (Duration, Duration) {
        let most = match self.down_since {
            Some(_) => times.retry_most.min(AWAITED_PAUSE),
            None => times.retry_most,
        };
        (times.retry_least.min(most), most)
    }

    /// How long an attempt may take until its transport stands.
    pub fn patience(&self, times: &Times) -> Duration {
        match self.down_since {
            Some(_) => times.dial.min(AWAITED_DIAL),
            None => times.dial,
        }
    }

    /// An attempt to make a channel failed. The pause counts from its beginning: one that nobody answered has taken longer, and a question
    /// of it may have been lost just before the end of the trouble.
    pub fn dial_failed(
        &mut self,
        (class, number): (Class, u16),
        now: Instant,
        times: &Times,
        chance: u32,
    ) {
        self.counters.failed += 1;
        let bounds = self.pauses(times);
        let is_up = self.is_up();
        let mut began = now;
        if let Some(slot) = self.slot(class, number) {
            slot.dial = None;
            began = slot.dialled.take().unwrap_or(now);
            if is_up {
                slot.backoff.fail(began, bounds, chance);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if !is_up {
            self.backoff.fail(began, bounds, chance);
        }
    }

    /// A channel has left its slot. One that was up for long is made again at once.
    pub fn vacate(&mut self, up: &Up, now: Instant, times: &Times, chance: u32) {
        let steady = now.saturating_duration_since(up.since) >= steady(times);
        let bounds = self.pauses(times);
        if let Some(slot) = self.slot(up.line.class, up.line.number) {
            slot.up = None;
            if steady {
                slot.backoff.succeed();
            } else {
                slot.backoff.fail(now, bounds, chance);
            }
        }
        if !self.is_up() {
            if steady {
                self.backoff.succeed();
            } else {
                self.backoff.fail(now, bounds, chance);
            }
        }
    }

    /// It broke the contract: it is kept away, for longer each time.
    pub fn shun(&mut self, now: Instant, times: &Times, chance: u32) {
        self.counters.violations += 1;
        let forgiven = 4 * times.retry_most;
        let long_ago = |then: Instant| now.saturating_duration_since(then) > forgiven;
        if self.violated.is_some_and(long_ago) {
            self.shunned.succeed();
        }
        self.violated = Some(now);
        self.shunned
            .fail(now, (times.retry_least, times.retry_most), chance);
    }
}

fn name((_, class, number): (&ChannelSlot, Class, u16)) -> (Class, u16) {
    (class, number)
}

/// A channel that was up for so long was no failure.
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
