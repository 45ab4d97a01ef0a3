//! How many channels there are to each peer: what the scale policy decides, from how busy workers are and how channels fare.
//!
//! Nothing is looked at while nobody is busy: a worker that has much to do tells so, and the looking ends when the channels are
//! as few as they may be and nobody works.

use netchannel_control::hosts::{Decision, SchedulerView};
use netchannel_scheduler::scale::ScaleView;
use netchannel_scheduler::{
    Action, ChannelView, Class, CoreId, Registry, ScalePolicy, Setting, WorkerId, WorkerView,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Pause between two looks.
const EVERY: Duration = Duration::from_millis(50);
/// Decisions that are shown.
const SHOWN: usize = 16;
/// Below this utilisation, 0 to 1000, nobody works.
const NOTHING: u16 = 20;
/// So many quiet looks in a row end the looking.
const QUIET_LOOKS: u32 = 4;

/// A peer that is up, as it is looked at.
#[derive(Debug)]
pub struct Scaled<'a> {
    /// Its name.
    pub name: &'a str,
    /// The policy for it.
    pub setting: &'a Setting,
    /// All its channels, those that are being made too.
    pub channels: Vec<ChannelView>,
    /// Fewest channels, by [`Class::index`].
    pub least: [u16; 2],
}

/// How many channels of a class a peer is to have from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The peer's name.
    pub peer: String,
    /// Of which class.
    pub class: Class,
    /// How many.
    pub count: u16,
}

/// What decides, and what it has decided.
#[derive(Default)]
pub struct Scaling {
    policies: HashMap<String, (Setting, Box<dyn ScalePolicy>)>,
    /// What each worker had worked in all, in nanoseconds, and when that was looked at.
    busy: Vec<u64>,
    looked: u64,
    next: Option<Instant>,
    quiet: u32,
    decisions: VecDeque<(Instant, String, String)>,
    added: u64,
    retired: u64,
}

impl std::fmt::Debug for Scaling {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scaling").finish_non_exhaustive()
    }
}

impl Scaling {
    /// A worker is busy, or another policy holds: looks from now on. `busy` and `clock` are of the workers.
    pub fn begin(&mut self, busy: Vec<u64>, clock: u64, now: Instant) {
        self.quiet = 0;
        if self.next.is_none() {
            (self.busy, self.looked) = (busy, clock);
            self.next = Some(now + EVERY);
        }
    }

    /// When to look next; never while nothing happens.
    pub const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks, if it is time. True if the looking goes on, or never began; false when it ends with this.
    pub fn look(
        &mut self,
        busy: Vec<u64>,
        clock: u64,
        peers: &[Scaled<'_>],
        now: Instant,
    ) -> (Vec<Wanted>, bool) {
        if self.next.is_none_or(|next| next > now) {
            return (Vec::new(), true);
        }
        let workers = self.utilisation(busy, clock);
        let mut wanted = Vec::new();
        for peer in peers {
            for class in Class::ALL {
                wanted.extend(self.decide(peer, class, &workers, (clock, now)));
            }
        }
        let few = |peer: &Scaled<'_>| {
            Class::ALL.into_iter().all(|class| {
                let own = peer.channels.iter().filter(|one| one.id.class == class);
                own.count() <= usize::from(peer.least[class.index()])
            })
        };
        let idle = workers.iter().all(|one| one.utilisation < NOTHING);
        let over = wanted.is_empty() && idle && peers.iter().all(few);
        self.quiet = if over { self.quiet + 1 } else { 0 };
        let ends = self.quiet >= QUIET_LOOKS;
        self.next = (!ends).then_some(now + EVERY);
        (wanted, !ends)
    }

    fn utilisation(&mut self, busy: Vec<u64>, clock: u64) -> Vec<WorkerView> {
        let elapsed = clock.saturating_sub(self.looked).max(1);
        let before = std::mem::replace(&mut self.busy, busy);
        self.looked = clock;
        let pairs = self.busy.iter().zip(before).zip(0..);
        pairs
            .map(|((busy, before), number)| {
                let share = busy.saturating_sub(before).saturating_mul(1000) / elapsed;
                WorkerView {
                    id: WorkerId(number),
                    core: None::<CoreId>,
                    utilisation: u16::try_from(share).unwrap_or(1000).min(1000),
                }
            })
            .collect()
    }

    fn decide(
        &mut self,
        peer: &Scaled<'_>,
        class: Class,
        workers: &[WorkerView],
        (clock, now): (u64, Instant),
    ) -> Option<Wanted> {
        let known = self.policies.get(peer.name);
        if known.is_none_or(|(setting, _)| setting != peer.setting) {
            let policy = Registry::builtin().scale(peer.setting).ok()?;
            let policy = (peer.setting.clone(), policy);
            self.policies.insert(peer.name.to_owned(), policy);
        }
        let (_, policy) = self.policies.get_mut(peer.name)?;
        let view = ScaleView {
            class,
            channels: &peer.channels,
            workers,
        };
        let count = view.count();
        let least = peer.least[class.index()];
        let decision = policy.decide(&view, clock);
        let count = match decision.action {
            Action::Keep => return None,
            // More channels than workers give a worker no more time: they would only take from each other.
            Action::Add if count >= least && usize::from(count) >= shares(class, workers) => {
                return None;
            }
            Action::Add => count + 1,
            Action::Retire(_) => count.checked_sub(1)?.max(least),
        };
        match decision.action {
            Action::Add => self.added += 1,
            _ => self.retired += 1,
        }
        tracing::info!("peer {}: {decision}", peer.name);
        if self.decisions.len() == SHOWN {
            self.decisions.pop_front();
        }
        let said = (now, peer.name.to_owned(), decision.to_string());
        self.decisions.push_back(said);
        Some(Wanted {
            peer: peer.name.to_owned(),
            class,
            count,
        })
    }

    /// What it has decided.
    pub fn show(&self, to: &mut SchedulerView, now: Instant) {
        (to.added, to.retired) = (self.added, self.retired);
        let decisions = self.decisions.iter();
        to.decisions = decisions
            .map(|(at, peer, text)| Decision {
                seconds_ago: now.saturating_duration_since(*at).as_secs(),
                peer: peer.clone(),
                text: text.clone(),
            })
            .collect();
    }
}

/// Workers that work channels of a class: the first those of latency, the others those of throughput.
const fn shares(class: Class, workers: &[WorkerView]) -> usize {
    match class {
        Class::Latency => 1,
        Class::Throughput => workers.len().saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_scheduler::ChannelId;

    fn peer(setting: &Setting, throughput: u32) -> Scaled<'_> {
        let view = |class, number| {
            let id = ChannelId { class, number };
            let worker = match class {
                Class::Latency => 0,
                Class::Throughput => 1 + u16::try_from(number).unwrap(),
            };
            ChannelView::idle(id, WorkerId(worker))
        };
        let mut channels = vec![view(Class::Latency, 0)];
        channels.extend((0..throughput).map(|number| view(Class::Throughput, number)));
        Scaled {
            name: "beta",
            setting,
            channels,
            least: [1, 1],
        }
    }

    /// What comes of looks every 50 ms, while the workers are as busy as said, in thousandths.
    struct Play {
        scaling: Scaling,
        start: Instant,
        clock: u64,
        busy: Vec<u64>,
        channels: u32,
        goes_on: bool,
    }

    impl Play {
        fn new(workers: usize) -> Self {
            let mut scaling = Scaling::default();
            let start = Instant::now();
            scaling.begin(vec![0; workers], 0, start);
            Self {
                scaling,
                start,
                clock: 0,
                busy: vec![0; workers],
                channels: 1,
                goes_on: true,
            }
        }

        fn run(&mut self, setting: &Setting, looks: u32, utilisation: u64) {
            for _ in 0..looks {
                self.clock += 50_000_000;
                for busy in &mut self.busy {
                    *busy += 50_000 * utilisation;
                }
                let now = self.start + Duration::from_nanos(self.clock);
                let peers = [peer(setting, self.channels)];
                let (wanted, goes_on) =
                    self.scaling
                        .look(self.busy.clone(), self.clock, &peers, now);
                for wanted in wanted {
                    assert_eq!(wanted.class, Class::Throughput);
                    self.channels = u32::from(wanted.count);
                }
                self.goes_on = goes_on;
            }
        }
    }

    fn setting() -> Setting {
        let text = "hysteresis most=8 busy-for=200ms idle-for=500ms pause=100ms";
        Registry::builtin().parse(text).unwrap()
    }

    #[test]
    fn busy_workers_get_channels_and_idle_ones_lose_them() {
        let setting = setting();
        let mut play = Play::new(4);
        play.run(&setting, 40, 990);
        // No more than there are workers for.
        assert_eq!(play.channels, 3);
        assert!(play.goes_on);
        play.run(&setting, 200, 0);
        assert_eq!(play.channels, 1);
        assert_eq!(play.scaling.deadline(), None);
        let mut shown = SchedulerView::default();
        play.scaling.show(&mut shown, Instant::now());
        assert_eq!((shown.added, shown.retired), (2, 2));
        let text = &shown.decisions[0].text;
        assert!(
            text.starts_with("add a throughput channel: workers busy (99 %)"),
            "{text}"
        );
    }

    #[test]
    fn one_worker_works_no_second_channel() {
        let mut play = Play::new(2);
        play.run(&setting(), 100, 1000);
        assert_eq!(play.channels, 1);
    }
}
