//! What a decision costs, on one thread: nanoseconds each, in the best of several rounds.

use core::hint::black_box;
use std::time::{Duration, Instant};

use netchannel_scheduler::copy::{CopyRequest, CopyWorkerView, Direction};
use netchannel_scheduler::rate::Rate;
use netchannel_scheduler::view::TenantView;
use netchannel_scheduler::*;

/// How long one figure is measured for, and how many times; the best counts, since whatever else
/// runs on the machine only ever adds time.
const SPAN: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

fn measure(what: &str, wanted: f64, mut body: impl FnMut(u64)) {
    let mut best = f64::MAX;
    let mut now = 0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut times = 0u32;
        while begun.elapsed() < SPAN {
            for _ in 0..1024 {
                now += 100;
                body(now);
            }
            times += 1024;
        }
        best = best.min(begun.elapsed().as_secs_f64() * 1e9 / f64::from(times));
    }
    let verdict = if best <= wanted { "reached" } else { "MISSED" };
    println!("{what:<58} {best:>7.1} ns   (must be <= {wanted}: {verdict})");
}

fn channels(count: u32) -> Vec<ChannelView> {
    let class = |number| Class::ALL[(number % 2) as usize];
    (0..count)
        .map(|number| ChannelView {
            queued: u64::from(number) * 1000,
            ..ChannelView::idle(
                ChannelId {
                    class: class(number),
                    number,
                },
                WorkerId(0),
            )
        })
        .collect()
}

fn main() {
    let registry = Registry::builtin();
    for entry in registry.of_kind(Kind::Channel) {
        for count in [2, 8, 32] {
            let setting = registry.parse(entry.name).expect("it is listed");
            let mut policy = registry.channel(&setting).expect("it is a channel policy");
            let list = channels(count);
            let socket = SocketView {
                id: SocketId(5),
                tenant: TenantId(0),
                class: Class::Throughput,
                ready: 1 << 20,
                window: 1 << 20,
                last_channel: Some(list[count as usize - 1].id),
            };
            let what = format!("{} among {count} channels", entry.name);
            measure(&what, 100.0, |now| {
                black_box(policy.choose(black_box(&socket), 65_536, black_box(&list), now));
            });
        }
    }
    for entry in registry.of_kind(Kind::Order) {
        for (sockets, tenants, capped) in [(1, 1, false), (1000, 16, false), (1000, 16, true)] {
            let setting = registry.parse(entry.name).expect("it is listed");
            let mut policy = registry.order(&setting).expect("it is an order policy");
            for id in 0..tenants {
                let view = TenantView {
                    bytes: capped.then(|| Rate::bytes(100_000_000_000)),
                    operations: capped.then(|| Rate::operations(100_000_000)),
                    ..TenantView::unlimited(TenantId(id))
                };
                policy.set_tenant(view, 0).expect("few");
            }
            for id in 0..sockets {
                let class = Class::ALL[(id % 2) as usize];
                let tenant = TenantId(id % tenants);
                policy.attach(SocketId(id), tenant, class).expect("new");
            }
            let caps = if capped { ", caps" } else { "" };
            let what = format!(
                "{}, {sockets} sockets of {tenants} tenants{caps}",
                entry.name
            );
            let mut turn = 0;
            measure(&format!("{what}: update, next, on_sent"), 100.0, |now| {
                turn = (turn + 1) % sockets;
                policy.update(SocketId(turn), 4096);
                if let Next::Grant(grant) = policy.next(Room::both(65_536), now) {
                    policy.on_sent(&grant, grant.bytes, now);
                }
            });
        }
    }
    let setting = registry.parse("copy-least-loaded").expect("it is listed");
    let mut policy = registry.copy(&setting).expect("it is a copy policy");
    let workers: Vec<CopyWorkerView> = (0..8)
        .map(|id| CopyWorkerView {
            id: WorkerId(id),
            core: Some(CoreId(id)),
            queued: u64::from(id),
            near: true,
        })
        .collect();
    let request = CopyRequest {
        direction: Direction::Send,
        class: Class::Throughput,
        length: 1 << 20,
        assigned: 1 << 17,
        in_flight: 0,
        core: Some(CoreId(0)),
    };
    measure("copy-least-loaded among 8 workers", 100.0, |now| {
        black_box(policy.choose(black_box(&request), black_box(&workers), now));
    });
    let mut observer = Observer::new();
    measure("observing a message and its answer", 20.0, |now| {
        observer.on_sent(black_box(100), now);
        observer.on_received(black_box(4096), now + 50);
        black_box(observer.class());
    });
}
