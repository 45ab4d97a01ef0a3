//! Tests of one socket, and of two that talk; they read like transcripts.

mod end;
mod handshake;
mod retention;
mod time;
mod window;

use crate::*;

pub(super) const ONE: ChannelId = ChannelId(1);
pub(super) const TWO: ChannelId = ChannelId(2);
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MILLISECOND;
/// The first sequences: both streams wrap in every test.
pub(super) const A: u64 = u64::MAX - 5;
pub(super) const B: u64 = u64::MAX - 2000;
pub(super) const CAPACITY: u64 = 4096;

/// [`Settings::acknowledge_delay`] as usual.
pub(super) const DELAY: u64 = 10 * MILLISECOND;

/// Small, so that segments are of the size of the ring's parts.
pub(super) fn settings() -> Settings {
    Settings {
        segment: 1000,
        ..Settings::default()
    }
}

pub(super) const fn data(sequence: u64, length: u32) -> Transmit {
    Transmit::Data { sequence, length }
}

pub(super) const fn plain(filled: u64, limit: u64) -> Window {
    Window {
        filled,
        limit,
        fin: false,
        ask: false,
        again: false,
    }
}

pub(super) const fn window(filled: u64, limit: u64) -> Transmit {
    Transmit::Window(plain(filled, limit))
}

pub(super) const fn with_fin(filled: u64, limit: u64) -> Transmit {
    let window = plain(filled, limit);
    Transmit::Window(Window {
        fin: true,
        ..window
    })
}

pub(super) const fn asking(filled: u64, limit: u64) -> Transmit {
    let window = plain(filled, limit);
    Transmit::Window(Window {
        ask: true,
        ..window
    })
}

pub(super) const fn again(filled: u64, limit: u64) -> Transmit {
    let window = plain(filled, limit);
    Transmit::Window(Window {
        again: true,
        ..window
    })
}

/// A connection, time, and what is on its way nowhere: frames are handed over by hand.
pub(super) struct Pair {
    pub(super) a: VirtualSocket,
    pub(super) b: VirtualSocket,
    pub(super) now: u64,
}

impl Pair {
    pub(super) fn opening(settings: Settings) -> Self {
        let now = 1_000_000_000;
        let mut a = VirtualSocket::active(settings, start(A, B), now);
        let open = a.next_transmit(9999, now).unwrap();
        let Transmit::Open { limit } = open else {
            panic!("{open:?}")
        };
        a.sent(&open, ONE, now);
        let b = VirtualSocket::passive(settings, start(B, A), limit, now).unwrap();
        Self { a, b, now }
    }

    pub(super) fn with(settings: Settings) -> Self {
        let mut pair = Self::opening(settings);
        pair.b.accept(pair.now);
        let answer = pair.b.next_transmit(9999, pair.now).unwrap();
        pair.b.sent(&answer, ONE, pair.now);
        let Transmit::Answer { limit } = answer else {
            panic!("{answer:?}")
        };
        pair.a.on_answer(limit, pair.now).unwrap();
        pair.a.take_changes();
        pair.b.take_changes();
        pair
    }

    pub(super) fn new() -> Self {
        Self::with(settings())
    }

    /// A's program has written `bytes` in all.
    pub(super) fn written(&mut self, bytes: u64) {
        self.a.on_written(A.wrapping_add(bytes), self.now).unwrap();
    }

    /// B's program has read `bytes` in all.
    pub(super) fn read(&mut self, bytes: u64) {
        self.b.on_read(A.wrapping_add(bytes), self.now).unwrap();
    }

    /// What A sends next, on `channel`.
    pub(super) fn a_sends(&mut self, budget: u32, channel: ChannelId) -> Option<Transmit> {
        sends(&mut self.a, budget, channel, self.now)
    }

    pub(super) fn b_sends(&mut self, budget: u32, channel: ChannelId) -> Option<Transmit> {
        sends(&mut self.b, budget, channel, self.now)
    }

    pub(super) fn b_hears(&mut self, transmit: Transmit) {
        deliver(&mut self.b, transmit, self.now).unwrap();
    }

    pub(super) fn a_hears(&mut self, transmit: Transmit) {
        deliver(&mut self.a, transmit, self.now).unwrap();
    }

    /// Both send all they have until they have nothing.
    pub(super) fn acknowledge(&mut self) {
        for _ in 0..1000 {
            let mut quiet = true;
            while let Some(transmit) = self.a_sends(1000, ONE) {
                self.b_hears(transmit);
                quiet = false;
            }
            self.acknowledgements_come_due();
            while let Some(transmit) = self.b_sends(1000, ONE) {
                self.a_hears(transmit);
                quiet = false;
            }
            self.acknowledgements_come_due();
            if quiet {
                return;
            }
        }
        panic!("they talk for ever");
    }

    /// Lets so much time pass that what is not acknowledged yet is.
    fn acknowledgements_come_due(&mut self) {
        let soon = self.now + DELAY;
        let sockets = [&self.a, &self.b];
        if sockets
            .iter()
            .any(|socket| socket.next_timeout().is_some_and(|at| at <= soon))
        {
            self.pass(DELAY);
        }
    }

    /// Lets time pass, with the calls that are due.
    pub(super) fn pass(&mut self, time: u64) {
        self.now += time;
        for socket in [&mut self.a, &mut self.b] {
            if socket.next_timeout().is_some_and(|at| at <= self.now) {
                socket.on_timeout(self.now);
            }
        }
    }
}

const fn start(transmit: u64, receive: u64) -> Start {
    Start {
        transmit,
        receive,
        capacity: CAPACITY,
    }
}

pub(super) fn sends(
    socket: &mut VirtualSocket,
    budget: u32,
    channel: ChannelId,
    now: u64,
) -> Option<Transmit> {
    let transmit = socket.next_transmit(budget, now)?;
    socket.sent(&transmit, channel, now);
    Some(transmit)
}

/// Hands a frame over; bytes are placed at once.
pub(super) fn deliver(
    socket: &mut VirtualSocket,
    transmit: Transmit,
    now: u64,
) -> Result<(), Violation> {
    match transmit {
        Transmit::Open { limit } => socket.on_open_again(limit, now),
        Transmit::Answer { limit } => socket.on_answer(limit, now),
        Transmit::Data { sequence, length } => {
            if let Placement::Write {
                sequence,
                length,
                claim,
                ..
            } = socket.on_data(sequence, length, now)?
            {
                socket.placed(&claim, sequence, length, now);
                socket.finish(claim, now);
            }
            Ok(())
        }
        Transmit::Window(window) => socket.on_window(window, now),
        Transmit::Fin { sequence } => socket.on_fin(sequence, now),
        Transmit::Reset { reason } => {
            socket.on_reset(reason, now);
            Ok(())
        }
    }
}
