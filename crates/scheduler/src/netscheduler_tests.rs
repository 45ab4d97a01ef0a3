use super::*;
use crate::channel::{RoundRobin, Sticky, THRESHOLD};
use crate::order::{Fair, FairParameters, Shares};
use crate::rate::Rate;
use crate::time::MILLISECOND;
use crate::view::{Phase, WorkerId};

const L: Class = Class::Latency;
const T: Class = Class::Throughput;
const SEGMENT: u32 = 64 << 10;

fn scheduler() -> NetScheduler {
    let order = Box::new(Fair::new(FairParameters::default()));
    let mut scheduler = NetScheduler::new(order, Box::new(RoundRobin::new(THRESHOLD, 1)));
    scheduler
        .set_tenant(TenantView::unlimited(TenantId(0)), 0)
        .unwrap();
    for (socket, class) in [(0, L), (1, T), (2, T)] {
        scheduler
            .attach(SocketId(socket), TenantId(0), class)
            .unwrap();
    }
    scheduler
}

fn channels() -> Vec<ChannelView> {
    let ids = [(L, 0), (T, 0), (T, 1)].map(|(class, number)| ChannelId { class, number });
    ids.map(|id| ChannelView::idle(id, WorkerId(0))).to_vec()
}

fn segment(step: Step) -> Segment {
    match step {
        Step::Send(segment) => segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn segments_go_in_order_to_channels_of_their_class() {
    let mut scheduler = scheduler();
    let list = channels();
    assert_eq!(scheduler.next(&list, SEGMENT, 0), Step::Idle);
    scheduler.update(SocketId(0), 100, u64::MAX);
    scheduler.update(SocketId(1), u64::MAX, 1 << 40);
    scheduler.update(SocketId(2), 1 << 40, u64::MAX);
    let mut taken = Vec::new();
    for _ in 0..5 {
        let segment = segment(scheduler.next(&list, SEGMENT, 0));
        let id = list[segment.channel].id;
        scheduler.on_sent(&segment.grant, segment.grant.bytes, id, 0);
        taken.push((segment.grant.socket.0, id.to_string()));
    }
    let wanted = [(0, "L0"), (1, "T0"), (2, "T1"), (1, "T0"), (2, "T1")];
    assert_eq!(
        taken,
        wanted.map(|(socket, channel)| (socket, channel.to_owned()))
    );
}

#[test]
fn full_channels_of_one_class_do_not_hold_up_the_other() {
    let mut scheduler = scheduler();
    let mut list = channels();
    scheduler.update(SocketId(0), 100, 100);
    scheduler.update(SocketId(1), 1 << 30, 1 << 30);
    list[0].queued = THRESHOLD;
    assert_eq!(segment(scheduler.next(&list, SEGMENT, 0)).grant.class, T);
    list[0].queued = 0;
    list[1].queued = THRESHOLD;
    list[2].queued = THRESHOLD;
    assert_eq!(segment(scheduler.next(&list, SEGMENT, 0)).grant.class, L);
    list[0].queued = THRESHOLD;
    assert_eq!(scheduler.next(&list, SEGMENT, 0), Step::Full(None));
    for channel in &mut list {
        channel.phase = Phase::Draining;
    }
    assert_eq!(scheduler.next(&list, SEGMENT, 0), Step::NoChannel);
    assert_eq!(scheduler.next(&[], SEGMENT, 0), Step::NoChannel);
}

#[test]
fn the_window_bounds_what_is_sent() {
    let mut scheduler = scheduler();
    let list = channels();
    scheduler.update(SocketId(1), 1 << 30, 1000);
    let segment = segment(scheduler.next(&list, SEGMENT, 0));
    assert_eq!(segment.grant.bytes, 1000);
    scheduler.on_sent(&segment.grant, 1000, list[segment.channel].id, 0);
    assert_eq!(scheduler.next(&list, SEGMENT, 0), Step::Idle);
}

#[test]
fn policies_change_while_sockets_live() {
    let mut scheduler = scheduler();
    let list = channels();
    let capped = TenantView {
        bytes: Some(Rate::new(1_000_000, 10_000)),
        ..TenantView::unlimited(TenantId(0))
    };
    scheduler.set_tenant(capped, 0).unwrap();
    scheduler.set_channel_policy(Box::new(Sticky::new(THRESHOLD, THRESHOLD)));
    scheduler.update(SocketId(1), 1 << 30, 1 << 30);
    let first = segment(scheduler.next(&list, SEGMENT, 0));
    scheduler.on_sent(&first.grant, first.grant.bytes, list[first.channel].id, 0);
    let order = Fair::new(FairParameters {
        shares: Shares::PerSocket,
        ..FairParameters::default()
    });
    scheduler.set_order_policy(Box::new(order), 0);
    assert_eq!(
        scheduler.next(&list, SEGMENT, 0),
        Step::Until(10 * MILLISECOND)
    );
    let second = segment(scheduler.next(&list, SEGMENT, 10 * MILLISECOND));
    assert_eq!(second.channel, first.channel, "sticky");
}

#[test]
fn a_new_socket_does_not_inherit_the_last_channel_of_its_number() {
    let mut scheduler = scheduler();
    let list = channels();
    scheduler.set_channel_policy(Box::new(Sticky::new(THRESHOLD, THRESHOLD)));
    scheduler.update(SocketId(1), 1, 1);
    let first = segment(scheduler.next(&list, SEGMENT, 0));
    scheduler.on_sent(&first.grant, 1, list[first.channel].id, 0);
    scheduler.detach(SocketId(1));
    scheduler.attach(SocketId(1), TenantId(0), T).unwrap();
    scheduler.update(SocketId(1), 1, 1);
    let second = segment(scheduler.next(&list, SEGMENT, 0));
    assert_ne!(second.channel, first.channel, "spread anew");
}

/// Both at once: who waits for a channel only would sleep through the time when caps release the other class.
#[test]
fn full_channels_and_caps_are_both_told() {
    let mut scheduler = scheduler();
    let mut list = channels();
    let capped = TenantView {
        bytes: Some(Rate::new(1_000_000, 10_000)),
        ..TenantView::unlimited(TenantId(1))
    };
    scheduler.set_tenant(capped, 0).unwrap();
    scheduler.attach(SocketId(3), TenantId(1), T).unwrap();
    scheduler.update(SocketId(3), 1 << 30, 1 << 30);
    let first = segment(scheduler.next(&list, SEGMENT, 0));
    scheduler.on_sent(&first.grant, first.grant.bytes, list[first.channel].id, 0);
    scheduler.update(SocketId(0), 100, 100);
    list[0].queued = THRESHOLD;
    let until = Some(10 * MILLISECOND);
    assert_eq!(scheduler.next(&list, SEGMENT, 0), Step::Full(until));
}
