//! How fast it is, for who works on it: `cargo test --release -p netchannel-engine --lib speed -- --ignored --nocapture`.

use super::*;
use netchannel_abi::link::waiter as bits;
use netchannel_ring::waiter;
use netchannel_shm::run::transfer;
use netchannel_shm::{Room, Run};
use rustix::event::{PollFd, PollFlags, poll};

const CHANNELS: [ChannelId; 2] = [id(Class::Latency, 0), id(Class::Throughput, 0)];

/// Sleeps as a program does, unless `ready`.
fn sleep(lane: &mut Lane, wanted: u32, mut ready: impl FnMut(&mut Lane) -> bool) {
    for _ in 0..200 {
        if ready(lane) {
            return;
        }
        std::hint::spin_loop();
    }
    waiter::arm(&lane.sides().unwrap().0.waiter, wanted);
    if !ready(lane) {
        poll(&mut [PollFd::new(&*lane, PollFlags::IN)], None).unwrap();
    }
    waiter::disarm(&lane.sides().unwrap().0.waiter, wanted);
    lane.on_token(true);
}

fn send(lane: &mut Lane, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        done += write(lane, &bytes[done..]);
        if done < bytes.len() {
            sleep(lane, bits::SPACE, |lane| {
                lane.limit().unwrap() > lane.published()
            });
        }
    }
}

fn receive(lane: &mut Lane, buffer: &mut [u8]) -> usize {
    loop {
        let at = lane.consumed();
        let spans = lane.readable(at, buffer.len() as u64).unwrap();
        let got = transfer(&lane.runs(spans), &[Room::from(&mut *buffer)]);
        if got > 0 {
            lane.consume(at + got as u64).unwrap();
            return got;
        }
        sleep(lane, bits::DATA, |lane| lane.frontier().unwrap() > at);
    }
}

fn kernel_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        usage.tv_sec.unsigned_abs(),
        u32::try_from(usage.tv_nsec).unwrap(),
    )
}

#[test]
#[ignore = "a measurement"]
fn speed_of_one_stream() {
    let total = 20_usize << 30;
    for size in [64, 4096, 128 << 10] {
        let mut world = World::new(&CHANNELS);
        let (mut client, mut server) = world.connect();
        let total = match size {
            64 => total / 64,
            4096 => total / 8,
            _ => total,
        };
        let (start, time) = (Instant::now(), kernel_time());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let block = vec![1; size];
                for _ in 0..total / size {
                    send(&mut client, &block);
                }
            });
            let mut buffer = vec![0; 128 << 10];
            let mut got = 0;
            while got < total / size * size {
                got += receive(&mut server, &mut buffer);
            }
        });
        let taken = start.elapsed();
        println!(
            "{size:7} bytes a write: {:6.2} Gbit/s, {:.2} processors, {:.2} million writes/s",
            total as f64 * 8e-9 / taken.as_secs_f64(),
            (kernel_time() - time).as_secs_f64() / taken.as_secs_f64(),
            (total / size) as f64 * 1e-6 / taken.as_secs_f64(),
        );
        let counters = &world.peers[0].counters;
        println!("        {counters:?}");
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_round_trips() {
    let mut world = World::new(&CHANNELS);
    let (mut client, mut server) = world.connect();
    let rounds = 100_000;
    let mut times = Vec::with_capacity(rounds);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            for _ in 0..rounds {
                let got = receive(&mut server, &mut buffer);
                send(&mut server, &buffer[..got]);
            }
        });
        let mut buffer = [0; 64];
        for _ in 0..rounds {
            let start = Instant::now();
            send(&mut client, &[7; 64]);
            receive(&mut client, &mut buffer);
            times.push(start.elapsed());
        }
    });
    times.sort();
    println!(
        "round trip: P50 {:?}, P99 {:?}, {:?}",
        times[rounds / 2],
        times[rounds * 99 / 100],
        world.peers[0].counters
    );
    let _ = Run::empty();
}

/// Processor time of the calling thread.
fn own_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        usage.tv_sec.unsigned_abs(),
        u32::try_from(usage.tv_nsec).unwrap(),
    )
}

/// Connect, 64 bytes each way, close: what the two daemons spend for each, where so many programs do it at once.
#[test]
#[ignore = "a measurement"]
fn speed_of_connections() {
    for at_once in [1, 8] {
        let mut world = World::new(&CHANNELS);
        let (client, server) = world.connect();
        client.close(false);
        server.close(false);
        let rounds = 60_000 / at_once;
        let (start, time, own) = (Instant::now(), kernel_time(), own_time());
        for _ in 0..rounds {
            let mut clients: Vec<Lane> = (0..at_once).map(|_| world.dial()).collect();
            let mut servers = Vec::new();
            for lane in &mut clients {
                world.wait(|_| (lane.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
                assert_eq!(write(lane, &[1; 64]), 64);
            }
            while servers.len() < at_once {
                servers.push(world.wait(World::accept));
            }
            for lane in &mut servers {
                world.wait(|_| (read(lane).len() == 64).then_some(()));
                assert_eq!(write(lane, &[2; 64]), 64);
            }
            for mut lane in clients {
                world.wait(|_| (read(&mut lane).len() == 64).then_some(()));
                lane.close(false);
            }
            for lane in servers {
                world.wait(|_| (lane.peer_flags() & side_flags::FIN != 0).then_some(()));
                lane.close(false);
            }
        }
        let taken = start.elapsed();
        let spent = (kernel_time() - time).saturating_sub(own_time() - own);
        let count = (rounds * at_once) as f64;
        println!(
            "{at_once} at once: {:.0} connections/s, {:.2} us of the daemons' processor time for each",
            count / taken.as_secs_f64(),
            spent.as_secs_f64() * 1e6 / count,
        );
    }
}
