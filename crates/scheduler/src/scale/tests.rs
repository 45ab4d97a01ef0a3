use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::time::{MILLISECOND, SECOND};
use crate::view::WorkerId;

const LOOK: u64 = 10 * MILLISECOND;

/// Channels with a worker each, and a load that they share.
struct Peer {
    channels: Vec<ChannelView>,
    policy: Box<dyn ScalePolicy>,
    now: u64,
    changes: Vec<(u64, ScaleDecision)>,
}

impl Peer {
    fn new(policy: impl ScalePolicy + 'static) -> Self {
        Self {
            channels: Vec::new(),
            policy: Box::new(policy),
            now: 0,
            changes: Vec::new(),
        }
    }

    fn count(&self) -> usize {
        self.channels.len()
    }

    /// One look, with a load in thousandths of a worker, over all channels.
    fn look(&mut self, load: u32) -> ScaleDecision {
        let share = load / u32::try_from(self.count().max(1)).unwrap();
        let utilisation = u16::try_from(share.min(1000)).unwrap();
        let workers: Vec<WorkerView> = self
            .channels
            .iter()
            .map(|channel| WorkerView {
                id: channel.worker,
                core: None,
                utilisation,
            })
            .collect();
        let view = ScaleView {
            class: Class::Throughput,
            channels: &self.channels,
            workers: &workers,
        };
        let decision = self.policy.decide(&view, self.now);
        match decision.action {
            Action::Keep => {}
            Action::Add => {
                let number = (0..).find(|number| {
                    !self
                        .channels
                        .iter()
                        .any(|channel| channel.id.number == *number)
                });
                let number = number.unwrap();
                let class = Class::Throughput;
                let id = ChannelId { class, number };
                self.channels.push(ChannelView::idle(
                    id,
                    WorkerId(u16::try_from(number).unwrap()),
                ));
            }
            Action::Retire(id) => self.channels.retain(|channel| channel.id != id),
        }
        if decision.action != Action::Keep {
            self.changes.push((self.now, decision));
        }
        self.now += LOOK;
        decision
    }

    fn run(&mut self, span: u64, load: u32) {
        for _ in 0..span / LOOK {
            self.look(load);
        }
    }
}

fn hysteresis() -> Peer {
    let mut peer = Peer::new(Hysteresis::new(HysteresisParameters::default()));
    peer.look(0);
    assert_eq!(peer.count(), 1, "the least, at once");
    peer.run(2 * SECOND, 500);
    assert_eq!(peer.count(), 1);
    peer.changes.clear();
    peer
}

#[test]
fn persistently_busy_workers_get_help_up_to_the_most() {
    let mut peer = hysteresis();
    peer.run(190 * MILLISECOND, 10_000);
    assert_eq!(peer.count(), 1, "not yet");
    peer.run(60 * MILLISECOND, 10_000);
    assert_eq!(peer.count(), 2);
    peer.run(10 * SECOND, 10_000);
    assert_eq!(peer.count(), 4);
    assert_eq!(peer.look(10_000).reason, Reason::AtMost { most: 4 });
    let reasons = peer.changes.iter().map(|(_, decision)| decision.reason);
    assert!(
        reasons
            .into_iter()
            .all(|reason| matches!(reason, Reason::Busy { .. }))
    );
}

#[test]
fn a_short_burst_changes_nothing() {
    let mut peer = hysteresis();
    for _ in 0..100 {
        peer.run(100 * MILLISECOND, 10_000);
        peer.run(100 * MILLISECOND, 0);
    }
    assert_eq!(peer.changes, []);
}

#[test]
fn idle_workers_are_retired_one_by_one_down_to_the_least() {
    let mut peer = hysteresis();
    peer.run(10 * SECOND, 10_000);
    assert_eq!(peer.count(), 4);
    peer.changes.clear();
    peer.run(4 * SECOND, 0);
    assert_eq!(peer.count(), 4, "idle not long enough");
    peer.run(60 * SECOND, 0);
    assert_eq!(peer.count(), 1);
    assert!(
        peer.changes
            .windows(2)
            .all(|pair| pair[1].0 - pair[0].0 >= 5 * SECOND)
    );
    assert_eq!(peer.look(0).reason, Reason::AtLeast { least: 1 });
    // The last one added goes first.
    let first = Action::Retire(ChannelId {
        class: Class::Throughput,
        number: 3,
    });
    assert_eq!(peer.changes[0].1.action, first);
}

#[test]
fn a_congested_network_gets_no_more_channels() {
    let mut peer = hysteresis();
    peer.channels[0].congestion_limited = true;
    peer.run(10 * SECOND, 10_000);
    assert_eq!(peer.changes, []);
    assert_eq!(peer.look(10_000).reason, Reason::CongestionLimited);
    peer.channels[0].congestion_limited = false;
    assert_eq!(peer.look(10_000).action, Action::Add);
}

#[test]
fn none_is_retired_whose_share_would_make_the_others_busy() {
    let parameters = HysteresisParameters {
        idle: 500,
        ..HysteresisParameters::default()
    };
    let mut peer = Peer::new(Hysteresis::new(parameters));
    peer.look(0);
    peer.run(3 * SECOND, 1500);
    assert_eq!(peer.count(), 2);
    peer.changes.clear();
    peer.run(60 * SECOND, 950);
    assert_eq!(peer.changes, []);
    let reason = Reason::OthersWouldBeBusy { utilisation: 950 };
    assert_eq!(peer.look(950).reason, reason);
}

#[test]
fn only_channels_of_the_class_count() {
    let latency = ChannelView::idle(
        ChannelId {
            class: Class::Latency,
            number: 0,
        },
        WorkerId(7),
    );
    let throughput = ChannelView::idle(
        ChannelId {
            class: Class::Throughput,
            number: 0,
        },
        WorkerId(3),
    );
    let worker = |id, utilisation| WorkerView {
        id: WorkerId(id),
        core: None,
        utilisation,
    };
    let workers = [worker(3, 100), worker(7, 900), worker(9, 1000)];
    let channels = [latency, throughput];
    let view = |class| ScaleView {
        class,
        channels: &channels,
        workers: &workers,
    };
    assert_eq!(view(Class::Latency).utilisation(), 900);
    assert_eq!(view(Class::Throughput).utilisation(), 100);
    assert_eq!(view(Class::Latency).count(), 1);
}

#[test]
fn a_channel_that_can_not_be_opened_is_not_asked_for_at_every_look() {
    let mut policy = Hysteresis::new(HysteresisParameters::default());
    let view = ScaleView {
        class: Class::Latency,
        channels: &[],
        workers: &[],
    };
    let asked = (0..500u64)
        .filter(|look| policy.decide(&view, look * LOOK).action == Action::Add)
        .count();
    assert_eq!(asked, 5, "once a second");
}

#[test]
fn fixed_keeps_its_number() {
    let mut peer = Peer::new(Fixed::new(1, 3));
    peer.run(SECOND, 0);
    assert_eq!(peer.count(), 3);
    peer.run(10 * SECOND, 10_000);
    assert_eq!(peer.count(), 3);
    peer.policy = Box::new(Fixed::new(1, 2));
    peer.run(SECOND, 0);
    assert_eq!(peer.count(), 2);
}

#[test]
fn decisions_say_why() {
    let mut peer = hysteresis();
    peer.run(SECOND, 10_000);
    assert_eq!(
        peer.changes[0].1.to_string(),
        "add a throughput channel: workers busy (100 %) for 200 ms, the transport is not congestion-limited"
    );
}

/// Square waves of every length: for those that a channel's set-up is not worth, the number settles.
#[test]
fn oscillating_load_does_not_flap() {
    for period in [
        40, 200, 450, 900, 2_000, 5_000, 9_000, 12_000, 20_000, 40_000,
    ] {
        let mut peer = hysteresis();
        let half = period * MILLISECOND / 2;
        let whole = 600 * SECOND;
        for _ in 0..whole / (2 * half) {
            peer.run(half, 1_000);
            peer.run(half, 0);
        }
        let changes = peer.changes.len();
        let late = peer
            .changes
            .iter()
            .filter(|(at, _)| *at > whole / 2)
            .count();
        assert!(
            changes <= 8,
            "{changes} changes with a period of {period} ms"
        );
        assert_eq!(
            late, 0,
            "still changing after 5 minutes with a period of {period} ms"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the load does: within bounds, and never two changes within the pause.
    #[test]
    fn changes_are_rare_and_within_bounds(loads in vec((1..3_000u64, 0..6_000u32), 1..60)) {
        let mut peer = hysteresis();
        for (span, load) in loads {
            peer.run(span * MILLISECOND, load);
            prop_assert!((1..=4).contains(&peer.count()));
        }
        for pair in peer.changes.windows(2) {
            prop_assert!(pair[1].0 - pair[0].0 >= SECOND);
            if matches!(pair[1].1.action, Action::Retire(_)) {
                prop_assert!(pair[1].0 - pair[0].0 >= 5 * SECOND);
            }
        }
    }
}
