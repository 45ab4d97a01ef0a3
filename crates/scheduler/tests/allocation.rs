//! No decision allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use netchannel_scheduler::copy::{CopyRequest, CopyWorkerView, Direction};
use netchannel_scheduler::placement::{Core, PlacementView};
use netchannel_scheduler::rate::Rate;
use netchannel_scheduler::scale::ScaleView;
use netchannel_scheduler::time::MILLISECOND;
use netchannel_scheduler::view::TenantView;
use netchannel_scheduler::*;

/// Counts what the thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came; the count is a plain cell of the thread,
// initialised without allocating.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    body();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn counting_counts() {
    assert!(allocations(|| drop(Box::new(1))) > 0);
}

fn channels() -> Vec<ChannelView> {
    let id = |class, number| ChannelId { class, number };
    (0..8)
        .map(|number| {
            let class = Class::ALL[(number % 2) as usize];
            ChannelView::idle(id(class, number), WorkerId(0))
        })
        .collect()
}

#[test]
fn segments_cost_no_allocation() {
    let registry = Registry::builtin();
    for order in registry.of_kind(Kind::Order) {
        for channel in registry.of_kind(Kind::Channel) {
            let order = registry
                .order(&registry.parse(order.name).unwrap())
                .unwrap();
            let channel = registry
                .channel(&registry.parse(channel.name).unwrap())
                .unwrap();
            let mut scheduler = NetScheduler::new(order, channel);
            for id in 0..16u32 {
                let view = TenantView {
                    bytes: (id % 2 == 0).then(|| Rate::bytes(1_000_000 * u64::from(id + 1))),
                    operations: (id % 3 == 0).then(|| Rate::operations(1000)),
                    ..TenantView::unlimited(TenantId(id))
                };
                scheduler.set_tenant(view, 0).unwrap();
            }
            for id in 0..1000u32 {
                let class = Class::ALL[(id % 2) as usize];
                scheduler
                    .attach(SocketId(id), TenantId(id % 16), class)
                    .unwrap();
            }
            let list = channels();
            let mut sent = 0;
            let count = allocations(|| {
                for now in 0..20_000u64 {
                    let socket = SocketId(u32::try_from(now * 7 % 1000).unwrap());
                    scheduler.update(socket, now * 31 % 100_000, 60_000);
                    scheduler.set_class(socket, Class::ALL[(now % 2) as usize]);
                    if let Step::Send(segment) = scheduler.next(&list, 65_536, now * MILLISECOND) {
                        let id = list[segment.channel].id;
                        scheduler.on_sent(
                            &segment.grant,
                            segment.grant.bytes,
                            id,
                            now * MILLISECOND,
                        );
                        sent += 1;
                    }
                    let _ = scheduler.admit(TenantId(3), now);
                }
            });
            assert!(sent > 5_000, "{sent}");
            assert_eq!(count, 0);
        }
    }
}

#[test]
fn other_decisions_cost_no_allocation() {
    let registry = Registry::builtin();
    let setting = |name: &str| registry.parse(name).unwrap();
    let list = channels();
    let workers: Vec<WorkerView> = (0..8)
        .map(|id| WorkerView {
            id: WorkerId(id),
            core: None,
            utilisation: 990,
        })
        .collect();
    let cores: Vec<Core> = (0..16)
        .map(|id| Core {
            id: CoreId(id),
            physical: id / 2,
            group: id / 8,
            node: 0,
        })
        .collect();
    let copiers: Vec<CopyWorkerView> = (0..4)
        .map(|id| CopyWorkerView {
            id: WorkerId(id),
            core: Some(CoreId(id)),
            queued: 0,
            near: true,
        })
        .collect();
    let mut scale = registry.scale(&setting("hysteresis")).unwrap();
    let mut near = registry.placement(&setting("near")).unwrap();
    let mut spread = registry.placement(&setting("spread")).unwrap();
    let mut copy = registry.copy(&setting("copy-least-loaded")).unwrap();
    let count = allocations(|| {
        let mut observer = Observer::new();
        for now in 0..1000 {
            for class in Class::ALL {
                let view = ScaleView {
                    class,
                    channels: &list,
                    workers: &workers,
                };
                scale.decide(&view, now * 10 * MILLISECOND);
                let view = PlacementView {
                    cores: &cores,
                    occupied: &[],
                    device_node: Some(0),
                };
                near.place(WorkerId(0), class, &view);
                spread.place(WorkerId(0), class, &view);
            }
            let request = CopyRequest {
                direction: Direction::Send,
                class: Class::Throughput,
                length: 1 << 20,
                assigned: now * 1000,
                in_flight: 0,
                core: Some(CoreId(0)),
            };
            copy.choose(&request, &copiers, now);
            observer.on_sent(4096, now);
            let _ = classify(&Hints {
                observed: observer.class(),
                ..Hints::default()
            });
        }
    });
    assert_eq!(count, 0);
}
