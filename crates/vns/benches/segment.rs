//! What a segment costs in virtual sockets alone, both ends on one thread: sent, placed, and acknowledged by every fourth Window.
//!
//! The engine adds the lock, the frame and the copy. 10 Gbps in segments of 64 KiB are 19 thousand a second, of 4 KiB 305 thousand.

use core::hint::black_box;
use std::time::{Duration, Instant};

use netchannel_vns::{ChannelId, Placement, Settings, Start, Transmit, VirtualSocket};

/// How long a figure is measured for, and how many times; the best counts.
const SPAN: Duration = Duration::from_millis(200);
const ROUNDS: usize = 5;
const CAPACITY: u64 = 4 << 20;

struct Pair {
    a: VirtualSocket,
    b: VirtualSocket,
    now: u64,
    written: u64,
}

impl Pair {
    fn new() -> Self {
        let start = Start {
            transmit: 0,
            receive: 0,
            capacity: CAPACITY,
        };
        let settings = Settings::default();
        let mut a = VirtualSocket::active(settings, start, 0);
        let open = a.next_transmit(0, 0).expect("Open is due");
        a.sent(&open, ChannelId(0), 0);
        let mut b = VirtualSocket::passive(settings, start, CAPACITY, 0).expect("a window");
        b.accept(0);
        let answer = b.next_transmit(0, 0).expect("Answer is due");
        b.sent(&answer, ChannelId(0), 0);
        a.on_answer(CAPACITY, 0).expect("an answer");
        Self {
            a,
            b,
            now: 0,
            written: 0,
        }
    }

    /// `count` segments of `length` bytes over `channels` in turn, then the Window.
    fn round(&mut self, count: u32, length: u32, channels: u32) {
        for at in 0..count {
            self.now += 100;
            self.written += u64::from(length);
            self.a.on_written(self.written, self.now).expect("forward");
            let Some(Transmit::Data { sequence, length }) = self.a.next_transmit(length, self.now)
            else {
                panic!("data is due");
            };
            let data = Transmit::Data { sequence, length };
            self.a.sent(&data, ChannelId(at % channels), self.now);
            black_box(self.a.next_timeout());
            let placement = self.b.on_data(sequence, length, self.now);
            let Ok(Placement::Write { claim, .. }) = placement else {
                panic!("it is new");
            };
            self.b.placed(&claim, sequence, length, self.now);
            self.b.finish(claim, self.now);
            black_box(self.b.next_timeout());
        }
        self.b.on_read(self.written, self.now).expect("forward");
        self.now += Settings::default().acknowledge_delay;
        self.b.on_timeout(self.now);
        while let Some(transmit) = self.b.next_transmit(0, self.now) {
            self.b.sent(&transmit, ChannelId(0), self.now);
            if let Transmit::Window(window) = transmit {
                self.a.on_window(window, self.now).expect("honest");
            }
        }
        black_box(self.a.take_changes());
        black_box(self.b.take_changes());
    }
}

fn main() {
    println!("a virtual socket has {} bytes", size_of::<VirtualSocket>());
    for channels in [1, 4] {
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let mut pair = Pair::new();
            let (mut segments, began) = (0_u32, Instant::now());
            while began.elapsed() < SPAN {
                for _ in 0..64 {
                    pair.round(4, 4096, channels);
                }
                segments += 64 * 4;
            }
            best = best.min(began.elapsed().as_secs_f64() * 1e9 / f64::from(segments));
        }
        println!("{channels} channels: {best:.1} ns for a segment, both ends");
    }
}
