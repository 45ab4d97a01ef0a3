//! One transfer of 1 MiB between a buffer and a ring, by its caller and 0 to 3 helpers.
//!
//! Awake: helpers spin for the next transfer until it comes, as they do for 50 us on a machine with processors to
//! spare. Asleep: they sleep as soon as there is nothing to do, and must be woken for each transfer. After a pause: the
//! whole machine has slept for 2 ms, too. A transfer is timed from its begin until all of its bytes are there; the
//! median is printed.

use std::time::{Duration, Instant};

use netchannel_shm::Region;
use netchannel_shm::split::{Direction, Plan, Pool, Transfer};

const LENGTH: usize = 1 << 20;
const PART: u64 = 64 << 10;
const TIMES: usize = 300;

static POOL: Pool = Pool::new(5_000_000_000);

fn main() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{processors} processors, 1 MiB, microseconds (Gbit/s)");
    println!(
        "{:<26} {:>16} {:>16}",
        "", "into the ring", "out of the ring"
    );
    let (descriptor, region) = Region::create(c"bench", 4 * LENGTH).expect("memfd");
    // SAFETY: the descriptor is ours; the mapping does not need it.
    unsafe { libc::close(descriptor) };
    let mut buffer = vec![0x5a_u8; LENGTH];
    let states = [
        ("awake", 1_000_000, Duration::ZERO),
        ("asleep", 0, Duration::ZERO),
        ("after a pause", 0, Duration::from_millis(2)),
    ];
    for (state, patience, pause) in states {
        for helpers in 0..=3 {
            let plan = Plan {
                helpers,
                part: PART,
                local: PART,
                patience,
            };
            let figures = [Direction::In, Direction::Out].map(|direction| {
                let micros = median(&region, &mut buffer, &plan, direction, pause);
                let rate = LENGTH as f64 * 8.0 / micros / 1e3;
                format!("{micros:.0} ({rate:.0})")
            });
            let name = format!("{helpers} helpers, {state}");
            println!("{name:<26} {:>16} {:>16}", figures[0], figures[1]);
            POOL.dismiss();
            POOL.admit();
        }
    }
}

fn median(
    region: &Region,
    buffer: &mut [u8],
    plan: &Plan,
    direction: Direction,
    pause: Duration,
) -> f64 {
    let mut times = [0.0; TIMES];
    for (sequence, time) in (0..).step_by(LENGTH).zip(&mut times) {
        let transfer = Transfer {
            region,
            ring: 0,
            size: 4 * LENGTH as u64,
            sequence,
            buffer: buffer.as_mut_ptr(),
            length: LENGTH as u64,
            direction,
        };
        std::thread::sleep(pause);
        let begun = Instant::now();
        let copied = if plan.helpers == 0 {
            // SAFETY: the buffer is ours.
            LENGTH as u64 - unsafe { transfer.copy() }
        } else {
            // SAFETY: buffer and region are ours.
            unsafe { POOL.copy(&transfer, plan, |_| {}) }
        };
        *time = begun.elapsed().as_secs_f64() * 1e6;
        assert_eq!(copied, LENGTH as u64);
    }
    times.sort_by(f64::total_cmp);
    times[TIMES / 2]
}
