//! Any calls in any order with any numbers, at times that jump: nothing panics, nothing grows without bound, a closed socket stays
//! closed, and what is told never shrinks.

#[path = "simulation/random.rs"]
#[expect(dead_code, reason = "the simulation uses all of it")]
mod random;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use netchannel_vns::{
    ChannelId, Claim, Hold, KeepAlive, Linger, MOST_CLAIMS, MOST_IN_FLIGHT_RANGES, MOST_RANGES,
    Placement, Reason, Settings, Start, State, Transmit, VirtualSocket, Window,
};

use random::Random;

struct Run {
    random: Random,
    socket: VirtualSocket,
    start: Start,
    now: u64,
    claims: Vec<(Claim, u64, u32)>,
    holds: Vec<Hold>,
    told: (u64, u64),
    lived: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let start = Start {
            transmit: random.word(),
            receive: random.word(),
            capacity: extreme(&mut random, 5000),
        };
        let settings = Settings {
            segment: u32::try_from(extreme(&mut random, 2000) & 0xffff_ffff).unwrap(),
            acknowledge_delay: extreme(&mut random, 2000),
            probe_interval: extreme(&mut random, 2000),
            user_timeout: random.once_in(2).then(|| extreme(&mut random, 100_000_000)),
            keep_alive: random.once_in(2).then(|| KeepAlive {
                idle: extreme(&mut random, 3_000_000),
                interval: extreme(&mut random, 3_000_000),
                count: u8::try_from(random.upto(255)).unwrap(),
            }),
            ..Settings::default()
        };
        let now = extreme(&mut random, 1000);
        let limit = start.transmit.wrapping_add(random.upto(5000));
        let socket = match random.once_in(2) {
            true => VirtualSocket::active(settings, start, now),
            false => VirtualSocket::passive(settings, start, limit, now).unwrap(),
        };
        Self {
            random,
            socket,
            start,
            now,
            claims: Vec::new(),
            holds: Vec::new(),
            told: (0, 0),
            lived: 0,
        }
    }

    fn channel(&mut self) -> ChannelId {
        ChannelId(u32::try_from(self.random.upto(3)).unwrap() * 21)
    }

    /// A sequence, mostly near where the stream begins.
    fn near(&mut self, start: u64) -> u64 {
        start.wrapping_add(extreme(&mut self.random, 6000))
    }

    fn step(&mut self) {
        let closed = matches!(self.socket.state(), State::Closed(_));
        let state = self.socket.state();
        self.now = match self.random.upto(20) {
            0 => self
                .now
                .saturating_add(extreme(&mut self.random, 1_000_000)),
            1 => self.now.saturating_sub(5),
            _ => self.now.saturating_add(self.random.upto(500)),
        };
        match self.random.upto(150) {
            0 => self.peer_speaks(),
            1..15 => self.program_acts(),
            15..40 => self.time_and_channels(),
            40..60 => self.workers(),
            _ => self.honest(),
        }
        self.lived += u64::from(!closed);
        if closed {
            assert_eq!(self.socket.state(), state, "closed for good");
        }
        assert!(self.socket.gaps() <= MOST_RANGES);
        assert!(self.socket.in_flight_ranges() <= MOST_IN_FLIGHT_RANGES);
        assert!(self.socket.claims() <= MOST_CLAIMS && self.socket.holds() <= MOST_CLAIMS);
    }

    fn peer_speaks(&mut self) {
        let (transmit, receive) = (self.start.transmit, self.start.receive);
        let window = Window {
            filled: self.near(transmit),
            limit: self.near(transmit),
            fin: self.random.once_in(3),
            ask: self.random.once_in(3),
            again: self.random.once_in(3),
        };
        let sequence = self.near(receive);
        match self.random.upto(20) {
            0 => {
                let _ = self.socket.on_open_again(window.limit, self.now);
            }
            1..5 => {
                let _ = self.socket.on_answer(window.limit, self.now);
            }
            5..9 => {
                let _ = self.socket.on_window(window, self.now);
            }
            9 => {
                let _ = self.socket.on_fin(sequence, self.now);
            }
            10 if self.random.once_in(20) => self.socket.on_reset(Reason::NoSocket, self.now),
            _ => {
                let length = extreme(&mut self.random, 3000) & 0xffff_ffff;
                let length = u32::try_from(length).unwrap();
                self.arrives(sequence, length);
            }
        }
    }

    fn arrives(&mut self, sequence: u64, length: u32) {
        if let Ok(Placement::Write {
            sequence,
            length,
            claim,
            ..
        }) = self.socket.on_data(sequence, length, self.now)
        {
            self.claims.push((claim, sequence, length));
        }
    }

    /// What a sane peer and engine would do, so that something happens at all.
    fn honest(&mut self) {
        match self.random.upto(6) {
            0 => {
                self.transmits();
                if self.socket.state() == State::Opening {
                    let limit = self.start.transmit.wrapping_add(self.random.upto(5000));
                    {
                        let _ = self.socket.on_answer(limit, self.now);
                    };
                }
                self.socket.accept(self.now);
            }
            1 => {
                let sequence = self.socket.frontier().wrapping_add(self.random.upto(100));
                let offset = sequence.wrapping_sub(self.start.receive);
                let room = self.told.1.saturating_sub(offset).min(50);
                if room > 0 {
                    let length = u32::try_from(self.random.between(1, room)).unwrap();
                    self.arrives(sequence, length);
                }
            }
            2 => {
                let _ = self.socket.on_read(self.socket.frontier(), self.now);
            }
            3 => {
                let sequence = self.socket.next().wrapping_add(self.random.upto(100));
                {
                    let _ = self.socket.on_written(sequence, self.now);
                };
            }
            4 => {
                let (acknowledged, next) = (self.socket.acknowledged(), self.socket.next());
                let filled = acknowledged.wrapping_add(self.random.upto(self.socket.in_flight()));
                let window = Window {
                    filled,
                    limit: next.wrapping_add(6000),
                    fin: false,
                    ask: self.random.once_in(5),
                    again: self.random.once_in(9),
                };
                // Held bytes make it less than what is acknowledged; that is one that came late.
                if self.socket.holds() == 0 && self.socket.state() == State::Established {
                    let _ = self.socket.on_window(window, self.now);
                }
            }
            _ => self.transmits(),
        }
    }

    fn transmits(&mut self) {
        let budget = u32::try_from(self.random.upto(2000)).unwrap();
        let Some(transmit) = self.socket.next_transmit(budget, self.now) else {
            return;
        };
        if let Transmit::Data { length, .. } = transmit {
            assert!(length > 0 && length <= budget);
        }
        if let Transmit::Window(window) = transmit {
            let offset = |sequence: u64| sequence.wrapping_sub(self.start.receive);
            let told = (offset(window.filled), offset(window.limit));
            assert!(told.0 >= self.told.0 && told.1 >= self.told.1, "it shrank");
            assert!(told.0 <= told.1);
            self.told = told;
        }
        if let Transmit::Open { limit } | Transmit::Answer { limit } = transmit {
            self.told.1 = limit.wrapping_sub(self.start.receive);
        }
        let channel = self.channel();
        self.socket.sent(&transmit, channel, self.now);
    }

    fn program_acts(&mut self) {
        let (transmit, receive) = (self.start.transmit, self.start.receive);
        let linger = match self.random.upto(2) {
            0 => Linger::Background,
            1 => Linger::Wait(extreme(&mut self.random, 5000)),
            _ => Linger::Abort,
        };
        let (written, read) = (self.near(transmit), self.near(receive));
        match self.random.upto(200) {
            0 => self.socket.accept(self.now),
            1 => self.socket.refuse(Reason::Quota, self.now),
            2 => self.socket.shutdown_write(self.now),
            3 => self.socket.close(linger, self.now),
            4 => self.socket.abort(Reason::ProgramFault, self.now),
            5 => self.socket.fail(Reason::Unreachable, self.now),
            6..20 => {
                let capacity = extreme(&mut self.random, 9000);
                self.socket.on_capacity(capacity, self.now);
            }
            20..100 => {
                let _ = self.socket.on_written(written, self.now);
            }
            _ => {
                let _ = self.socket.on_read(read, self.now);
            }
        }
    }

    fn time_and_channels(&mut self) {
        let channel = self.channel();
        match self.random.upto(3) {
            0 => self.socket.on_channel_lost(channel, self.now),
            1 => {
                self.socket.take_changes();
            }
            _ => self.socket.on_timeout(self.now),
        }
    }

    fn workers(&mut self) {
        if self.random.once_in(3) {
            let sequence = self.near(self.start.transmit);
            self.holds.extend(self.socket.hold(sequence));
        } else if !self.holds.is_empty() && self.random.once_in(2) {
            let at = self.random.index(self.holds.len());
            self.socket.release(self.holds.swap_remove(at), self.now);
        }
        if !self.claims.is_empty() {
            let at = self.random.index(self.claims.len());
            let (claim, sequence, length) = self.claims.swap_remove(at);
            match self.random.upto(3) {
                // Lies of an engine's own worker.
                0 => self
                    .socket
                    .placed(&claim, sequence.wrapping_sub(7), u32::MAX, self.now),
                1 => self.socket.placed(&claim, sequence, length / 2, self.now),
                _ => self.socket.placed(&claim, sequence, length, self.now),
            }
            self.socket.finish(claim, self.now);
        }
    }
}

/// Small, or near a power of two, or anything.
fn extreme(random: &mut Random, small: u64) -> u64 {
    match random.upto(30) {
        0 => random.word(),
        1 => (1_u64 << random.upto(63)).wrapping_sub(random.upto(2)),
        2 => u64::MAX - random.upto(2),
        _ => random.upto(small),
    }
}

#[test]
fn nothing_panics() {
    let only = std::env::var("NETCHANNEL_SEED").map(|seed| seed.parse().expect("a number"));
    let seeds = only.map_or(0..3000, |seed: u64| seed..seed + 1);
    let mut lived = 0;
    for seed in seeds.clone() {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut run = Run::new(seed);
            for _ in 0..300 {
                run.step();
            }
            run.lived
        }));
        match ran {
            Ok(steps) => lived += steps,
            Err(panic) => {
                eprintln!("failed: NETCHANNEL_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    let count = seeds.end - seeds.start;
    println!("a socket lived {} steps", lived / count);
    assert!(count == 1 || lived / count > 60);
}
