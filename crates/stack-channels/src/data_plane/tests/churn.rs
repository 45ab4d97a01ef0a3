//! Many connections of all sizes that come and go at the same time, on both workers of both hosts.

use super::*;

/// How many are open at one time, and in all.
const AT_ONCE: usize = 12;
const IN_ALL: usize = 1500;
const SIZES: [usize; 6] = [0, 8, 200, 20_000, 300_000, 1_500_000];

/// One end of a connection: what it still has to send, and how much it shall get.
struct End {
    lane: Lane,
    left: usize,
    wanted: usize,
}

impl End {
    /// Goes on; true at the end.
    fn step(&mut self) -> bool {
        while self.left > 0 {
            let done = write(&mut self.lane, &[5; 65536][..self.left.min(65536)]);
            self.left -= done;
            if done == 0 {
                break;
            }
            if self.left == 0 {
                self.lane.set_flags(side_flags::FIN);
            }
        }
        let flags = self.lane.peer_flags();
        assert_eq!(flags & side_flags::RESET, 0);
        self.wanted -= read(&mut self.lane).len();
        self.left == 0 && self.wanted == 0 && flags & side_flags::FIN != 0
    }
}

fn end(lane: Lane, left: usize, wanted: usize) -> End {
    if left == 0 {
        lane.set_flags(side_flags::FIN);
    }
    End { lane, left, wanted }
}

#[test]
fn connections_of_all_sizes_come_and_go() {
    let mut world = World::new(&[id(Class::Latency, 0), id(Class::Throughput, 0)]);
    let (mut made, mut random) = (0, 99_u64);
    let mut ends: Vec<End> = Vec::new();
    let mut moved = Instant::now();
    while made < IN_ALL || !ends.is_empty() {
        if made < IN_ALL && ends.len() < 2 * AT_ONCE {
            let (client, server) = world.connect();
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let index = usize::try_from(random >> 40).unwrap();
            let (there, back) = (SIZES[index % 6], SIZES[index / 6 % 6]);
            ends.push(end(client, there, back));
            ends.push(end(server, back, there));
            made += 1;
        }
        world.serve();
        for index in (0..ends.len()).rev() {
            if ends[index].step() {
                ends.swap_remove(index).lane.close(false);
                moved = Instant::now();
            }
        }
        assert!(moved.elapsed() < PATIENCE, "{} ends wait", ends.len());
    }
    world.wait(|world| (world.connections() == 0).then_some(()));
}
