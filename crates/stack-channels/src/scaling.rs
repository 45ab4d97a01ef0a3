//! The number of channels to each peer: applies the scale policy to the load of the workers and the state of the
//! channels.
//!
//! Nothing is sampled while no worker is busy. A worker that becomes busy reports it. Sampling ends when the number of
//! channels is at its minimum and the workers are idle.

use netchannel_control::hosts::{Decision, SchedulerView};
use netchannel_scheduler::scale::ScaleView;
use netchannel_scheduler::{
    Action, ChannelView, Class, CoreId, Registry, ScalePolicy, Setting, WorkerId, WorkerView,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The time between two samples.
const EVERY: Duration = Duration::from_millis(50);
/// The number of past decisions that are kept for display.
const SHOWN: usize = 16;
/// Below this utilisation, 0 to 1000, a worker counts as idle.
const NOTHING: u16 = 20;
/// Sampling ends after this many idle samples in a row.
const QUIET_LOOKS: u32 = 4;

/// The state of a peer that is up, as it is sampled.
#[derive(Debug)]
pub struct Scaled<'a> {
    /// Its name.
    pub name: &'a str,
    /// The policy for it.
    pub setting: &'a Setting,
    /// All its channels, including those that are being made.
    pub channels: Vec<ChannelView>,
    /// The configured minimum of channels, by [`Class::index`].
    pub least: [u16; 2],
}

/// A new number of channels of a class to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The peer's name.
    pub peer: String,
    /// The class.
    pub class: Class,
    /// The number.
    pub count: u16,
}

/// The policies, the samples and the past decisions.
#[derive(Default)]
pub struct Scaling {
    policies: HashMap<String, (Setting, Box<dyn ScalePolicy>)>,
    /// The total busy time of each worker in nanoseconds, and the time of that sample.
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
    /// Starts sampling: a worker is busy, or another policy applies. `busy` and `clock` come from the workers.
    pub fn begin(&mut self, busy: Vec<u64>, clock: u64, now: Instant) {
        self.quiet = 0;
        if self.next.is_none() {
            (self.busy, self.looked) = (busy, clock);
            self.next = Some(now + EVERY);
        }
    }

    /// The time of the next sample; `None` while nothing is sampled.
    pub const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Takes a sample if it is due. Returns the new numbers of channels, and false if sampling ends with this call.
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
            // More channels than workers give a worker no more time: the channels would only share it.
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
        let decided = (now, peer.name.to_owned(), decision.to_string());
        self.decisions.push_back(decided);
        Some(Wanted {
            peer: peer.name.to_owned(),
            class,
            count,
        })
    }

    /// Adds the decisions to a view.
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

/// The number of workers for channels of a class: the first worker is for latency, the others are for throughput.
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

    /// What comes of looks every 50 ms, while the workers are as busy as decided, in thousandths.
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
