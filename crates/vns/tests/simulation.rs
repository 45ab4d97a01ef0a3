//! Two daemons with many virtual sockets and several channels, in virtual time, with everything that can go wrong.
//!
//! What a run is follows from its seed alone. A failure names the seed: `NETCHANNEL_SEED=N cargo test -p netchannel-vns --test
//! simulation -- --nocapture` runs that one and tells every event. `NETCHANNEL_SEEDS=N` runs more of them than usual.
//!
//! What must hold in each run:
//!
//! - every byte a program reads is the right one, once and in order; an end comes after all of them;
//! - connections that nobody disturbed end in order at both hosts, with all bytes read and acknowledged;
//! - all others end too: nothing is left in the tables, and a bounded virtual time suffices;
//! - where nothing was lost, nothing is said twice; half of the runs of the first two kinds have no probes
//!   that could hide a forgotten frame;
//! - what a socket remembers stays bounded; lies of one socket's peer disturb no other, and nothing panics.

#[path = "simulation/engine.rs"]
mod engine;
#[path = "simulation/host.rs"]
mod host;
#[path = "simulation/network.rs"]
mod network;
#[path = "simulation/program.rs"]
mod program;
#[path = "simulation/random.rs"]
mod random;
#[path = "simulation/scenario.rs"]
mod scenario;
#[path = "simulation/world.rs"]
mod world;

use std::env;
use std::thread;

use world::World;

/// Says which seed it was, when the run did not come to its end.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("failed: NETCHANNEL_SEED={}", self.0);
        }
    }
}

fn run(seed: u64, tell: bool) -> World {
    let guard = Seed(seed);
    let mut world = World::new(seed, tell);
    world.run();
    world.judge();
    drop(guard);
    world
}

fn number(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Runs seeds of one kind; gives the sums of what happened, so that a simulation that does nothing is noticed.
fn seeds(kind: u64) {
    if let Some(seed) = number("NETCHANNEL_SEED") {
        if seed % 4 == kind {
            run(seed, true);
        }
        return;
    }
    let count = number("NETCHANNEL_SEEDS").unwrap_or(600);
    let mut sums = world::Sums::default();
    for at in 0..count {
        sums.add(&run(4 * at + kind, false).sums);
    }
    println!("kind {kind}: {sums:?}");
    assert!(sums.frames > 50 * count && sums.finished > count / 2);
}

#[test]
fn without_faults() {
    seeds(0);
}

#[test]
fn with_channels_that_are_cut() {
    seeds(1);
}

#[test]
fn with_daemons_that_begin_anew() {
    seeds(2);
}

#[test]
fn with_a_peer_that_lies() {
    seeds(3);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..8 {
        assert_eq!(run(seed, false).sums, run(seed, false).sums);
    }
}
