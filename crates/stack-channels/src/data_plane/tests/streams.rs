//! Many bytes.

use super::*;
use netchannel_driver::{Dequeued, Options, Room, Run, Status};
use netchannel_ring::held;
use netchannel_service::played::{pattern, place};
use netchannel_service::urgent::Row;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

fn both_ways(channels: &[ChannelId], megabytes: usize) {
    let mut world = World::new(channels);
    let (mut client, mut server) = world.connect();
    let block = pattern(1_000_003, 5);
    let (mut sent, mut got) = ([0_usize; 2], [0_usize; 2]);
    let total = megabytes * 1_000_000;
    let start = Instant::now();
    while got[0] < total || got[1] < total {
        assert!(start.elapsed() < 5 * PATIENCE, "sent {sent:?}, got {got:?}");
        world.serve();
        for (which, lane) in [&mut client, &mut server].into_iter().enumerate() {
            let at = sent[which] % block.len();
            let rest = (total - sent[which]).min(block.len() - at);
            sent[which] += write(lane, &block[at..at + rest]);
            for byte in read(lane).chunks(4096) {
                let at = got[1 - which] % block.len();
                let first = byte.len().min(block.len() - at);
                assert!(byte[..first] == block[at..at + first]);
                assert!(byte[first..] == block[..byte.len() - first]);
                got[1 - which] += byte.len();
            }
        }
    }
    client.set_flags(side_flags::FIN);
    server.set_flags(side_flags::FIN);
    world.wait(|world| (world.connections() == 0).then_some(()));
    client.close(false);
    server.close(false);
}

#[test]
fn bytes_go_both_ways() {
    both_ways(&[id(Class::Latency, 0), id(Class::Throughput, 0)], 30);
}

#[test]
fn one_channel_is_enough() {
    both_ways(&[id(Class::Throughput, 3)], 10);
    both_ways(&[id(Class::Latency, 0)], 10);
}

#[test]
fn a_stream_takes_many_channels() {
    let channels: Vec<_> = (0..4).map(|number| id(Class::Throughput, number)).collect();
    both_ways(&channels, 30);
}

/// The time of bytes that are held back is over while a worker looks at them.
#[test]
fn a_hold_that_expires_within_a_look_is_noticed() {
    let mut world = World::new(&[id(Class::Latency, 0), id(Class::Throughput, 0)]);
    let (mut client, mut server) = world.connect();
    let milliseconds = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap()
    };
    for left in (1..=2).cycle().take(600) {
        let now = milliseconds() - held::LONGEST + left;
        let (own, _) = client.sides().unwrap();
        let word = held::word(client.published(), held::OnReply::Keeps, now);
        held::publish(&own.held, word);
        write(&mut client, b"held");
        let came = world.wait(|_| Some(read(&mut server)).filter(|bytes| !bytes.is_empty()));
        assert_eq!(came, b"held");
    }
    client.close(false);
    server.close(false);
}

/// A reader that stands still holds nobody else up, and the sender is held back.
#[test]
fn a_slow_reader_holds_up_nobody() {
    slow_reader(&[id(Class::Latency, 0), id(Class::Throughput, 0)]);
    // Nor on the very same channel.
    slow_reader(&[id(Class::Throughput, 0)]);
}

fn slow_reader(channels: &[ChannelId]) {
    let mut world = World::new(channels);
    let (mut slow, mut still) = world.connect();
    let (mut client, mut server) = world.connect();
    let block = vec![3; 1 << 20];
    let (mut sent, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_millis(300) {
        sent += write(&mut slow, &block);
        world.serve();
    }
    assert!(sent < 20 << 20, "{sent} bytes were taken and not read");
    for _ in 0..20 {
        world.carry(&mut client, &mut server, &block[..300_000]);
    }
    let mut got = 0;
    world.wait(|_| {
        got += read(&mut still).len();
        (got >= sent).then_some(())
    });
}

#[test]
fn a_buffer_takes_what_tcp_would_before_anybody_reads() {
    let mut world = World::new(&[id(Class::Latency, 0), id(Class::Throughput, 0)]);
    let (mut client, mut server) = world.connect();
    assert_eq!(write(&mut client, &[9; 100_000]), 100_000);
    world.wait(|_| (server.frontier() == Ok(100_000)).then_some(()));
    assert_eq!(read(&mut server).len(), 100_000);
}

/// A channel whose round trip takes that long, as far as it says.
struct Far(Box<dyn Channel>, Duration);

impl Channel for Far {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn enqueue(&mut self, runs: &[Run<'_>]) -> io::Result<usize> {
        self.0.enqueue(runs)
    }

    fn dequeue(&mut self, rooms: &[Room<'_>]) -> io::Result<Dequeued> {
        self.0.dequeue(rooms)
    }

    fn status(&mut self) -> Status {
        Status {
            round_trip: self.1,
            least_round_trip: self.1,
            // On a busy machine bytes wait in this host, and a larger ring would not send them earlier.
            unsent: 0,
            ..self.0.status()
        }
    }

    fn tune(&mut self, options: &Options) {
        self.0.tune(options);
    }

    fn shut_down(&mut self) {
        self.0.shut_down();
    }
}

/// The ring that a program is to write into, after a stream of at most that time to a peer that is so far. The program
/// does not enlarge its ring by itself, as it would where the machine is busy and nobody reads for a while.
fn wanted_ring(round_trip: Duration, longest: Duration) -> u32 {
    let mut world = World::new(&[]);
    world.join_as(id(Class::Throughput, 0), |channel| {
        Box::new(Far(channel, round_trip))
    });
    let (mut client, mut server) = world.connect();
    let block = vec![5; 1 << 17];
    let send = |client: &mut Lane, bytes| {
        let at = client.published();
        let put = place(client, at, bytes);
        client.publish_with_mark(at + put, Row::default()).unwrap();
    };
    send(&mut client, &block[..1]);
    assert_eq!(client.grow_to(17), Ok(true));
    let wanted = |lane: &Lane| {
        let (_, peer) = lane.sides().unwrap();
        peer.wanted_ring.load(Ordering::Relaxed)
    };
    let start = Instant::now();
    // The first of a stream may go before anything is known of the channel.
    while wanted(&client) <= 17 && start.elapsed() < longest {
        world.serve();
        send(&mut client, &block);
        read(&mut server);
        std::thread::yield_now();
    }
    wanted(&client)
}

#[test]
fn a_far_peer_makes_the_ring_of_a_stream_larger() {
    assert!(wanted_ring(Duration::from_secs(1), PATIENCE) > 17);
    let near = Duration::from_micros(100);
    assert_eq!(wanted_ring(near, Duration::from_millis(300)), 0);
}
