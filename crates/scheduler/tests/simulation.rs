//! Many sockets of many tenants over several channels, in virtual time: every pair of an order and a channel policy.
//!
//! Channels drain at rates of their own and go down and up again. What must hold: no byte lost or doubled, no channel beyond its
//! threshold and a segment, channels kept busy while anybody has bytes, L soon, and the same seed the same run.

use std::collections::VecDeque;

use netchannel_scheduler::channel::THRESHOLD;
use netchannel_scheduler::time::{MILLISECOND, SECOND};
use netchannel_scheduler::view::TenantView;
use netchannel_scheduler::*;

const SEGMENT: u32 = 64 << 10;
const STEP: u64 = 20_000;
const TENANTS: u32 = 8;
const STREAMS: u32 = 200;
const TALKERS: u32 = 60;

/// A small generator; a failure prints the seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Default)]
struct Socket {
    written: u64,
    sent: u64,
    delivered: u64,
    /// The receiver reads so many bytes a step; 0 is one that does not read.
    reads: u64,
    read: u64,
    /// When each message that is not sent yet was written, and where it ends.
    messages: VecDeque<(u64, u64)>,
}

const RING: u64 = 256 << 10;

struct Channel {
    view: ChannelView,
    /// Bytes a step.
    rate: u64,
    carried: VecDeque<(u32, u64)>,
    busy: u64,
}

struct Outcome {
    digest: u64,
    latency: Vec<u64>,
    utilisation: f64,
    by_tenant: Vec<u64>,
}

fn run(seed: u64, order: &str, channel: &str, span: u64) -> Outcome {
    let registry = Registry::builtin();
    let order = registry.order(&registry.parse(order).unwrap()).unwrap();
    let channel = registry.channel(&registry.parse(channel).unwrap()).unwrap();
    let mut scheduler = NetScheduler::new(order, channel);
    let mut random = Random(seed | 1);
    for id in 0..TENANTS {
        let view = TenantView {
            weight: u16::try_from(id + 1).unwrap(),
            ..TenantView::unlimited(TenantId(id))
        };
        scheduler.set_tenant(view, 0).unwrap();
    }
    let count = STREAMS + TALKERS;
    let mut sockets: Vec<Socket> = (0..count).map(|_| Socket::default()).collect();
    for (id, socket) in (0..).zip(&mut sockets) {
        let class = if id < STREAMS {
            Class::Throughput
        } else {
            Class::Latency
        };
        scheduler
            .attach(SocketId(id), TenantId(id % TENANTS), class)
            .unwrap();
        // One of ten streams is not read at all.
        socket.reads = if id < STREAMS && id % 10 == 9 {
            0
        } else {
            1 << 30
        };
    }
    let mut channels: Vec<Channel> = [
        (Class::Latency, 0, 20_000),
        (Class::Throughput, 0, 25_000),
        (Class::Throughput, 1, 25_000),
        (Class::Throughput, 2, 10_000),
    ]
    .map(|(class, number, rate)| Channel {
        view: ChannelView::idle(ChannelId { class, number }, WorkerId(0)),
        rate,
        carried: VecDeque::new(),
        busy: 0,
    })
    .into();
    let mut digest = 0u64;
    let mut latency = Vec::new();
    let mut by_tenant = vec![0; TENANTS as usize];
    let mut now = 0;
    while now < span {
        for (id, socket) in (0u32..).zip(&mut sockets) {
            if id < STREAMS {
                socket.written = socket.read + RING;
            } else if random.below(200) == 0 {
                let bytes = 64 + random.below(2000);
                socket.written += bytes;
                socket.messages.push_back((now, socket.written));
            }
            let ready = socket.written - socket.sent;
            let window = socket.read + RING - socket.sent;
            scheduler.update(SocketId(id), ready, window);
        }
        // One T channel goes down for a while, now and then.
        let down = now / (50 * MILLISECOND) % 4 == 3;
        channels[2].view.phase = if down { Phase::Draining } else { Phase::Up };

        let mut views: Vec<ChannelView> = channels.iter().map(|channel| channel.view).collect();
        while let Step::Send(segment) = scheduler.next(&views, SEGMENT, now) {
            let socket = &mut sockets[segment.grant.socket.0 as usize];
            let bytes = u64::from(segment.grant.bytes);
            socket.sent += bytes;
            assert!(socket.sent <= socket.written && socket.sent <= socket.read + RING);
            let chosen = &mut channels[segment.channel];
            assert!(chosen.view.is_up());
            assert_eq!(chosen.view.id.class, segment.grant.class);
            chosen.view.queued += bytes;
            assert!(
                chosen.view.queued < THRESHOLD + u64::from(SEGMENT),
                "seed {seed}"
            );
            views[segment.channel] = chosen.view;
            chosen.carried.push_back((segment.grant.socket.0, bytes));
            scheduler.on_sent(&segment.grant, segment.grant.bytes, chosen.view.id, now);
            let place = segment.channel as u64;
            digest = (digest ^ bytes ^ u64::from(segment.grant.socket.0) << 24 ^ place << 56)
                .wrapping_mul(0x0100_0000_01b3);
        }
        for channel in &mut channels {
            let mut budget = channel.rate;
            while let Some((id, bytes)) = channel.carried.front_mut() {
                let part = budget.min(*bytes);
                let socket = &mut sockets[*id as usize];
                socket.delivered += part;
                if *id < STREAMS {
                    by_tenant[(*id % TENANTS) as usize] += part;
                }
                while let Some((at, end)) = socket.messages.front()
                    && *end <= socket.delivered
                {
                    latency.push(now + STEP - at);
                    socket.messages.pop_front();
                }
                channel.view.queued -= part;
                channel.busy += part;
                budget -= part;
                *bytes -= part;
                if *bytes > 0 {
                    break;
                }
                channel.carried.pop_front();
            }
        }
        for socket in &mut sockets {
            socket.read = socket.delivered.min(socket.read + socket.reads);
        }
        now += STEP;
    }
    for (id, socket) in (0u32..).zip(&sockets) {
        let under_way = channels.iter().flat_map(|channel| &channel.carried);
        let under_way = under_way
            .filter(|(owner, _)| *owner == id)
            .map(|(_, bytes)| bytes);
        assert_eq!(
            socket.sent,
            socket.delivered + under_way.sum::<u64>(),
            "seed {seed}"
        );
        if socket.reads == 0 {
            assert!(
                socket.sent <= RING,
                "what is not read is not sent on and on"
            );
        }
    }
    let steps = (span / STEP) as f64;
    let busy: u64 = channels[1..].iter().map(|channel| channel.busy).sum();
    let could: u64 = channels[1..].iter().map(|channel| channel.rate).sum();
    latency.sort_unstable();
    Outcome {
        digest,
        latency,
        utilisation: busy as f64 / (could as f64 * steps),
        by_tenant,
    }
}

fn pairs() -> Vec<(&'static str, &'static str)> {
    let registry = Registry::builtin();
    let names = |kind| {
        registry
            .of_kind(kind)
            .map(|entry| entry.name)
            .collect::<Vec<_>>()
    };
    let channels = names(Kind::Channel);
    names(Kind::Order)
        .into_iter()
        .flat_map(|order| {
            channels
                .iter()
                .map(move |channel| (order, *channel))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_pair_keeps_channels_busy_and_messages_soon() {
    for (order, channel) in pairs() {
        let outcome = run(7, order, channel, SECOND / 4);
        let count = outcome.latency.len();
        assert!(count > 1000, "{count}");
        let p999 = outcome.latency[count * 999 / 1000];
        assert!(p999 <= MILLISECOND, "{order} {channel}: {p999}");
        // One of three T channels takes nothing for a quarter of the time; it drains what it has meanwhile.
        assert!(
            outcome.utilisation > 0.9 || channel == "socket-hash",
            "{order} {channel}: {}",
            outcome.utilisation
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for (order, channel) in pairs() {
        let digest = |seed| run(seed, order, channel, SECOND / 20).digest;
        assert_eq!(digest(3), digest(3), "{order} {channel}");
    }
}

#[test]
fn tenants_get_their_weights_over_all_channels() {
    let outcome = run(11, "weighted-tenants", "shortest-queue", SECOND / 2);
    let whole: u64 = outcome.by_tenant.iter().sum();
    for (id, bytes) in (1u32..).zip(&outcome.by_tenant) {
        let wanted = f64::from(id) / 36.0;
        let share = *bytes as f64 / whole as f64;
        assert!(
            (share / wanted - 1.0).abs() < 0.15,
            "tenant {id}: {share} of {wanted}"
        );
    }
}
