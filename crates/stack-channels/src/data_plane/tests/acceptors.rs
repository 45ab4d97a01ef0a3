//! Acceptors that are killed before they accept: all that was sent to them comes to the next one.

use super::*;
use netchannel_service::played::pattern;

impl World {
    /// A program of the listener has a connection, and has not accepted it.
    fn announced(&mut self) -> Lane {
        self.wait(|world| {
            let link = world.servers.last()?;
            assert!(link.read_channel());
            let opened = take(link).pop()?;
            Some(Lane::accepted(link, opened.loan))
        })
    }

    /// The newest program of the listener is killed.
    fn kill(&mut self, unaccepted: Lane) {
        drop(unaccepted);
        self.servers.pop();
    }

    /// Sends the rest of these bytes, and waits until all have come to who accepts now.
    fn finish(&mut self, client: &mut Lane, bytes: &[u8], mut sent: usize) -> Lane {
        let mut server = self.wait(Self::accept);
        let mut got = Vec::new();
        self.wait(|_| {
            sent += write(client, &bytes[sent..]);
            if sent == bytes.len() {
                client.set_flags(side_flags::FIN);
            }
            let ended = server.peer_flags() & side_flags::FIN != 0;
            got.extend(read(&mut server));
            (ended && got.len() >= bytes.len()).then_some(())
        });
        assert!(got == bytes, "other bytes came");
        server
    }
}

const CHANNELS: [ChannelId; 3] = [
    id(Class::Latency, 0),
    id(Class::Throughput, 0),
    id(Class::Throughput, 1),
];

#[test]
fn what_a_killed_acceptor_was_sent_comes_to_the_next() {
    // Nothing, within the first ring, beyond it, and more than is taken before anybody reads.
    for length in [0, 100, 2048, 2049, 70_000, 300_000, 3_000_000] {
        let mut world = World::new(&CHANNELS);
        let mut client = world.dial();
        let killed = world.announced();
        let bytes = pattern(length, length % 97);
        let mut sent = 0;
        // As much as is taken before anybody reads.
        for _ in 0..30 {
            sent += write(&mut client, &bytes[sent..]);
            world.serve();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(killed.frontier().unwrap() >= length.min(2048) as u64);
        world.kill(killed);
        let mut server = world.finish(&mut client, &bytes, sent);
        // Both directions work.
        write(&mut server, b"answer");
        world.wait(|_| (client.frontier() == Ok(6)).then_some(()));
        assert_eq!(read(&mut client), b"answer");
        server.close(false);
        client.close(false);
        world.wait(|world| (world.connections() == 0).then_some(()));
    }
}

/// Bytes are under way at the moment of the kill.
#[test]
fn an_acceptor_is_killed_at_any_moment() {
    for round in 0..40_u64 {
        let mut world = World::new(&CHANNELS);
        let mut client = world.dial();
        let bytes = pattern(200_000, 3);
        let mut sent = 0;
        let killed = world.announced();
        while (sent as u64) < round * 5000 {
            let end = bytes.len().min(sent + 1000);
            sent += write(&mut client, &bytes[sent..end]);
        }
        world.kill(killed);
        let server = world.finish(&mut client, &bytes, sent);
        server.close(false);
        client.close(false);
        world.wait(|world| (world.connections() == 0).then_some(()));
    }
}

#[test]
fn a_connection_whose_listener_is_closed_meanwhile_is_reset() {
    let mut world = World::new(&CHANNELS);
    let client = world.dial();
    let killed = world.announced();
    world.listens = false;
    world.kill(killed);
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}

/// Relatives of the killed process have the link: the connection is announced over it once more.
#[test]
fn a_link_that_lives_on_brings_it_to_who_has_the_link() {
    let mut world = World::new(&CHANNELS);
    let mut client = world.dial();
    let bytes = pattern(5000, 4);
    let killed = world.announced();
    let sent = write(&mut client, &bytes);
    drop(killed);
    let server = world.finish(&mut client, &bytes, sent);
    server.close(false);
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
    assert_eq!(world.servers.len(), 1);
}

/// The client is gone before the next acceptor is found, which then sees a reset.
#[test]
fn a_client_that_resets_meanwhile_leaves_nothing() {
    let mut world = World::new(&CHANNELS);
    let client = world.dial();
    world.wait(|_| (client.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
    let killed = world.announced();
    world.kill(killed);
    // CoreEngine does not answer yet.
    std::thread::sleep(Duration::from_millis(30));
    client.close(true);
    let start = Instant::now();
    while world.connections() > 0 {
        assert!(start.elapsed() < PATIENCE, "the connection stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    let next = world.announced();
    world.wait(|_| (next.peer_flags() & side_flags::RESET != 0).then_some(()));
    next.close(false);
}

/// The second acceptor ends in the same way: that ends the connection.
#[test]
fn a_second_acceptor_that_is_killed_resets_it() {
    let mut world = World::new(&CHANNELS);
    let client = world.dial();
    let first = world.announced();
    world.kill(first);
    let second = world.announced();
    world.kill(second);
    world.wait(|_| (client.peer_flags() & side_flags::RESET != 0).then_some(()));
    client.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}
