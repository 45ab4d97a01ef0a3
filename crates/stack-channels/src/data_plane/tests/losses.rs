//! Channels that are lost: no byte is lost or doubled, and no connection.

use super::*;
use netchannel_service::played::pattern;

const L: ChannelId = id(Class::Latency, 0);

fn t(number: u32) -> ChannelId {
    id(Class::Throughput, number)
}

#[test]
fn a_lost_channel_loses_no_byte() {
    let mut world = World::new(&[L]);
    let mut cuts = vec![world.join(t(0)), world.join(t(1))];
    let (mut client, mut server) = world.connect();
    let block = pattern(1_000_003, 9);
    let (mut sent, mut got, total) = (0_usize, 0_usize, 40_000_000);
    let (start, mut next, mut number) = (Instant::now(), total / 10, 2);
    while got < total {
        assert!(start.elapsed() < 5 * PATIENCE, "sent {sent}, got {got}");
        world.serve();
        let at = sent % block.len();
        let rest = (total - sent).min(block.len() - at);
        sent += write(&mut client, &block[at..at + rest]);
        for piece in read(&mut server).chunks(4096) {
            let at = got % block.len();
            let first = piece.len().min(block.len() - at);
            assert!(piece[..first] == block[at..at + first], "at {got}");
            assert!(piece[first..] == block[..piece.len() - first], "at {got}");
            got += piece.len();
        }
        if got > next {
            next += total / 10;
            world.cut(cuts.remove(0));
            cuts.push(world.join(t(number)));
            number += 1;
        }
    }
    assert!(world.lost >= 9, "{}", world.lost);
    client.close(false);
    world.wait(|_| (server.peer_flags() & side_flags::FIN != 0).then_some(()));
    server.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn connections_wait_for_a_channel() {
    let mut world = World::new(&[]);
    let client = world.dial();
    std::thread::sleep(Duration::from_millis(50));
    let decided = side_flags::ESTABLISHED | side_flags::RESET;
    assert_eq!(client.peer_flags() & decided, 0);
    let cut = world.join(L);
    let mut server = world.wait(World::accept);
    world.wait(|_| (client.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
    world.cut(cut);
    world.wait(|world| (world.lost == 2).then_some(()));
    let mut client = client;
    write(&mut client, b"later");
    client.set_flags(side_flags::FIN);
    std::thread::sleep(Duration::from_millis(50));
    assert!(read(&mut server).is_empty());
    world.join(L);
    world.wait(|_| (server.peer_flags() & side_flags::FIN != 0).then_some(()));
    assert_eq!(read(&mut server), b"later");
    server.close(false);
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn a_connect_to_a_listener_seen_just_before_a_loss_waits_for_the_next_channel() {
    let mut world = World::new(&[L]);
    // What CoreEngine does when the last channel is lost, and the program has read the directory before.
    world.hosts[0].send(Command::Unlisten(THERE));
    let client = world.dial();
    world.wait(World::accept).close(false);
    world.wait(|_| (client.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
    client.close(false);
}

#[test]
fn a_retired_channel_loses_nothing() {
    let mut world = World::new(&[L]);
    let mut last = world.join(t(0));
    let (mut client, mut server) = world.connect();
    for number in 1..6 {
        world.carry(&mut client, &mut server, &pattern(500_000, 3));
        let (instance, _) = std::mem::replace(&mut last, world.join(t(number)));
        world.hosts[0].send(Command::Retire {
            instance,
            reason: netchannel_wire::GoAwayReason::Retired,
        });
    }
    world.carry(&mut server, &mut client, &pattern(500_000, 4));
    world.wait(|world| (world.lost == 10).then_some(()));
    let traffic = world.peers[0].traffic();
    assert_eq!(traffic.repeated_bytes, 0);
    // Channels that are gone count.
    assert_eq!(
        (traffic.sent_bytes, traffic.received_bytes),
        (2_500_000, 500_000)
    );
}

#[test]
fn a_peer_that_begins_anew_resets_its_sockets() {
    let mut world = World::new(&[L, t(0)]);
    let (client, server) = world.connect();
    for (which, hosts) in world.hosts.iter().enumerate() {
        hosts.send(Command::Fail {
            peer: Arc::clone(&world.peers[which]),
            reason: netchannel_vns::Reason::Restarted,
            what: FailureScope::Start,
        });
    }
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    world.wait(|_| (server.peer_flags() & side_flags::RESET != 0).then_some(()));
    client.close(false);
    server.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn who_is_out_of_reach_is_no_one_who_resets() {
    let mut world = World::new(&[L]);
    let (client, server) = world.connect();
    for which in 0..2 {
        world.hosts[which].send(Command::Fail {
            peer: Arc::clone(&world.peers[which]),
            reason: netchannel_vns::Reason::Unreachable,
            what: FailureScope::Sockets,
        });
    }
    for lane in [client, server] {
        world.wait(|_| (lane.peer_flags() & side_flags::RESET != 0).then_some(()));
        let (_, daemon) = lane.sides().unwrap();
        let said = daemon.error.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(said, Errno::TIMEDOUT.raw_os_error().unsigned_abs());
    }
}

#[test]
fn a_connect_that_nobody_answers_is_left_to_the_kernel_when_no_channel_is_left() {
    let mut world = World::new(&[L]);
    let lost = (ChannelInstance(world.channels), Class::Latency);
    // CoreEngine of the other host says nothing.
    let waits = world.dial();
    std::thread::sleep(Duration::from_millis(50));
    world.cut(lost);
    world.hosts[0].send(Command::Fail {
        peer: Arc::clone(&world.peers[0]),
        reason: netchannel_vns::Reason::Ending,
        what: FailureScope::Connects,
    });
    // Nor is one begun now.
    let late = world.dial();
    for lane in [waits, late] {
        world.wait(|_| (lane.peer_flags() & side_flags::RESET != 0).then_some(()));
        let (_, daemon) = lane.sides().unwrap();
        let said = daemon.error.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(said, Errno::CONNREFUSED.raw_os_error().unsigned_abs());
    }
}
