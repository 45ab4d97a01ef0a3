//! Connections made, refused, ended in every way.

use super::*;
use netchannel_ring::cell;
use std::sync::atomic::Ordering;

const L: ChannelId = id(Class::Latency, 0);
const T: ChannelId = id(Class::Throughput, 0);

#[test]
fn a_connection_is_made_used_and_ended() {
    let mut world = World::new(&[L, T]);
    for _ in 0..50 {
        let (mut client, mut server) = world.connect();
        world.carry(&mut client, &mut server, b"question");
        world.carry(&mut server, &mut client, b"answer");
        client.close(false);
        world.wait(|_| (server.peer_flags() & side_flags::FIN != 0).then_some(()));
        assert_eq!(server.peer_flags() & side_flags::RESET, 0);
        server.close(false);
    }
    world.wait(|world| (world.connections() == 0).then_some(()));
    world.wait(|world| (world.client.connections() == 0).then_some(()));
}

#[test]
fn an_anchor_used_again_follows_its_connection_to_another_worker() {
    let mut world = World::new(&[L, T]);
    for _ in 0..5 {
        let (mut client, mut server) = world.connect();
        // So much that it moves to the workers for throughput, on both hosts.
        world.carry(&mut client, &mut server, &[3; 3_000_000]);
        world.carry(&mut server, &mut client, &[4; 3_000_000]);
        assert_eq!(server.peer_flags() & side_flags::RESET, 0);
        client.close(false);
        world.wait(|_| (server.peer_flags() & side_flags::FIN != 0).then_some(()));
        server.close(false);
        world.wait(|world| (world.connections() == 0).then_some(()));
    }
}

#[test]
fn many_connections_at_once() {
    let mut world = World::new(&[L, T]);
    let mut clients: Vec<_> = (0..40).map(|_| world.dial()).collect();
    let mut servers: Vec<Lane> = Vec::new();
    for _ in 0..clients.len() {
        servers.push(world.wait(World::accept));
    }
    for client in &mut clients {
        write(client, b"x");
    }
    for server in &mut servers {
        let got = world.wait(|_| Some(read(server)).filter(|got| !got.is_empty()));
        assert_eq!(got, b"x");
    }
    clients
        .into_iter()
        .chain(servers)
        .for_each(|lane| lane.close(false));
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn a_connect_that_is_refused_says_why() {
    let mut world = World::new(&[L, T]);
    world.listens = false;
    let client = world.dial();
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    assert_eq!(client.peer_flags() & side_flags::ESTABLISHED, 0);
    let (_, peer) = client.sides().unwrap();
    let error = peer.error.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(error, Errno::CONNREFUSED.raw_os_error().unsigned_abs());
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn half_of_a_connection_goes_on() {
    let mut world = World::new(&[L, T]);
    let (mut client, mut server) = world.connect();
    write(&mut client, b"all I have");
    client.set_flags(side_flags::FIN);
    world.wait(|_| (server.peer_flags() & side_flags::FIN != 0).then_some(()));
    assert_eq!(read(&mut server), b"all I have");
    for _ in 0..20 {
        world.carry(&mut server, &mut client, &[7; 100_000]);
    }
    server.close(false);
    world.wait(|_| (client.peer_flags() & side_flags::FIN != 0).then_some(()));
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn a_reset_comes_at_once() {
    let mut world = World::new(&[L, T]);
    let (mut client, mut server) = world.connect();
    world.carry(&mut client, &mut server, b"question");
    // The program closes with bytes unread.
    server.close(true);
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn what_was_written_before_a_reset_comes_before_it() {
    let mut world = World::new(&[L, T]);
    for round in 0..50 {
        let (mut client, mut server) = world.connect();
        if round % 2 == 0 {
            world.carry(&mut client, &mut server, &[1; 1_000_000]);
        }
        assert_eq!(write(&mut client, b"question"), 8);
        client.close(true);
        world.wait(|_| (server.peer_flags() & side_flags::RESET != 0).then_some(()));
        assert_eq!(read(&mut server), b"question", "{round}");
        server.close(false);
    }
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn bytes_for_a_program_that_has_closed_reset_the_sender() {
    let mut world = World::new(&[L, T]);
    let (mut client, server) = world.connect();
    server.close(false);
    world.wait(|_| (client.peer_flags() & side_flags::FIN != 0).then_some(()));
    write(&mut client, b"anybody there?");
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    let (_, peer) = client.sides().unwrap();
    let error = peer.error.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(error, Errno::PIPE.raw_os_error().unsigned_abs());
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn bytes_for_a_program_that_shut_both_directions_reset_the_sender_whenever_its_daemon_hears_of_that()
 {
    let mut world = World::new(&[L, T]);
    let (mut client, mut server) = world.connect();
    world.carry(&mut client, &mut server, b"question");
    world.carry(&mut server, &mut client, b"answer");
    // The daemon is not told: it may be behind with what its programs say.
    let (own, _) = server.sides().unwrap();
    own.flags.fetch_or(side_flags::BOTH_SHUT, Ordering::Release);
    write(&mut client, b"too late");
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    client.close(false);
    server.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn a_token_that_goes_with_an_anchor_leaves_nobody_asleep() {
    let mut world = World::new(&[L]);
    let (ending, other_end) = world.connect();
    let (mut busy, mut busy_end) = world.connect();
    ending.set_flags(side_flags::FIN);
    world.wait(|_| (other_end.peer_flags() & side_flags::FIN != 0).then_some(()));
    // Nothing of the client for so long that its host's worker sleeps for the link, even while there is other work.
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(1));
        world.carry(&mut busy_end, &mut busy, b"news");
    }
    // The client has news of a connection that its host is about to let go of: the token that it owes from here on for all
    // of them goes with the anchor.
    let link = Arc::clone(&world.client);
    let map = link.cell(Role::Server, 0).unwrap();
    let slot = usize::try_from(ending.handle().index).unwrap();
    let (own, _) = ending.sides().unwrap();
    own.flags
        .fetch_or(side_flags::ANCHOR_GONE, Ordering::AcqRel);
    world.wait(|_| cell::mark(&map.asleep, &map.summary, &map.ready, slot).then_some(()));
    other_end.close(false);
    world.wait(|_| (ending.peer_flags() & side_flags::CLOSED != 0).then_some(()));
    ending.close(false);
    world.wait(|_| (!cell::any_marked(&map.summary)).then_some(()));
}
