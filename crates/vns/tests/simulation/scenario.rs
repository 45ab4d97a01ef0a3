//! What a seed means.

use netchannel_vns::{KeepAlive, Settings};

use crate::random::Random;

pub const MICROSECOND: u64 = 1000;
pub const MILLISECOND: u64 = 1000 * MICROSECOND;
pub const SECOND: u64 = 1000 * MILLISECOND;

/// Longest time until a host notices that a channel is gone.
pub const NOTICE: u64 = 2 * SECOND;

/// One run of the simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub settings: Settings,
    pub channels: usize,
    pub pairs: usize,
    /// Cuts of channels, daemons that begin anew: how many.
    pub cuts: u64,
    pub restarts: u64,
    /// The first pair's second host lies.
    pub lies: bool,
    /// Programs reset, close early, listeners refuse.
    pub rude: bool,
    /// The protocol has to do without its probes, which would hide a forgotten frame.
    pub without_probes: bool,
    /// Segments of a byte or two, windows of thousands: more gaps and flights than are remembered.
    pub crumbs: bool,
    /// Workers are slow between learning where bytes belong and writing them: one in so many times, 0 never.
    pub slow_workers: u64,
    /// All channels have numbers that are the same modulo 64.
    pub numbers_collide: bool,
    /// Longest time on a channel.
    pub latency: u64,
    /// Most bytes of a stream.
    pub bytes: u64,
    /// Largest segment.
    pub segment: u64,
}

impl Scenario {
    pub fn of(seed: u64, random: &mut Random) -> Self {
        // Four kinds, in turn: no fault at all, cuts, cuts and restarts, lies.
        let kind = seed % 4;
        let cuts = match kind {
            0 => 0,
            _ => random.between(1, 12),
        };
        let restarts = if kind == 2 { random.between(1, 2) } else { 0 };
        // With probes the windows are so large that bytes are forgotten, without they are not.
        let crumbs = matches!(seed % 64, 0 | 1 | 5);
        let without_probes = match seed % 64 {
            0 | 1 => false,
            5 => true,
            _ => kind < 2 && random.once_in(2),
        };
        let slow_workers = match random.once_in(2) {
            _ if crumbs => 700,
            true => 4,
            false => 0,
        };
        let mut settings = Settings {
            segment: u32::try_from(random.between(1, 2000)).unwrap(),
            acknowledge_delay: random.upto(2) * MILLISECOND,
            orphan_timeout: 600 * SECOND,
            ..Settings::default()
        };
        if without_probes {
            settings.probe_interval = u64::MAX / 2;
            settings.probe_interval_most = u64::MAX / 2;
        }
        if crumbs {
            // So late and so little that forgotten bytes had better be asked for.
            settings.segment = 50;
            settings.probe_interval = settings.probe_interval.max(20 * SECOND);
        }
        if random.once_in(4) {
            settings.keep_alive = Some(KeepAlive {
                idle: SECOND,
                interval: 20 * SECOND,
                count: 9,
            });
        }
        let small = random.once_in(3);
        Self {
            settings,
            channels: match usize::try_from(random.between(1, 6)).unwrap() {
                _ if crumbs && without_probes => 5,
                _ if crumbs => 2,
                channels => channels,
            },
            pairs: usize::try_from(random.between(1, if crumbs { 2 } else { 5 })).unwrap(),
            cuts,
            restarts,
            lies: kind == 3,
            rude: random.once_in(2),
            without_probes,
            crumbs,
            slow_workers,
            numbers_collide: random.once_in(8),
            latency: [20 * MICROSECOND, MILLISECOND, 20 * MILLISECOND][random.index(3)],
            bytes: match (crumbs, small) {
                (true, _) => 4000,
                (_, true) => 300,
                _ => 8000,
            },
            segment: match (crumbs, small) {
                (true, _) => 1,
                (_, true) => 7,
                _ => random.between(50, 3000),
            },
        }
    }

    /// Until then things go wrong; afterwards all that can end must end.
    pub const fn calm(&self) -> u64 {
        60 * SECOND
    }

    /// By then all is over.
    pub const fn end(&self) -> u64 {
        2000 * SECOND
    }
}
