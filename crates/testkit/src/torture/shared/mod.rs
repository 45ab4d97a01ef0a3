//! `torture shared`: one connection with several writers and several readers, which are threads or processes. Each of
//! them has its own way to wait. Every byte names its writer and counts, so that a lost, repeated or misplaced byte is
//! found; everybody ends.
//!
//! ```text
//!  round (a process, watched from outside)
//!    |-- sending process:   connects, its threads or children write, then it shuts the connection down
//!    `-- receiving process: accepts, its threads or children read to the end and tally what they got
//! ```

mod ends;
mod reader;
mod wait;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};

use netchannel_testkit::support::{Family, Random, listener, set_int, shared_zeroed, tcp};
use netchannel_testkit::sys::{self, Descriptor};

use crate::Options;
use crate::interrupter::{self, Interrupter};
use crate::rounds;

pub use ends::{drive, serve};

/// The most writers: their number is in the upper bits of a byte.
const WRITERS: usize = 8;
/// The values that the bytes of a writer count through.
const COUNTED: usize = 256 / WRITERS;
/// The most bytes of a writer.
const MOST: usize = 600_000;

/// How often each value was received.
pub struct Tally([AtomicU64; 256]);

/// How the actors of one end are made.
#[derive(Clone, Copy, Debug)]
enum Actors {
    Threads,
    Processes,
}

/// What is drawn for a round.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    family: Family,
    /// The bytes of each writer.
    writers: Vec<usize>,
    writing: Actors,
    readers: usize,
    reading: Actors,
    /// The size of the buffers, where it is set.
    buffers: Option<libc::c_int>,
    interrupts: bool,
}

impl Plan {
    fn draw(seed: u64, family: Option<Family>) -> Self {
        let mut random = Random::new(seed ^ 0x5a4e_d000);
        let actors = [Actors::Threads, Actors::Processes];
        let most = [2_000, 50_000, MOST][random.below(3)];
        let mut writers: Vec<_> = (0..[1, 1, 2, 3][random.below(4)])
            .map(|_| random.between(1, most))
            .collect();
        let small = random.between(2_000, 40_000);
        let buffers = random.once_in(3).then_some(small);
        if let Some(small) = buffers {
            // The kernel's TCP may move only one small buffer in 200 ms.
            writers
                .iter_mut()
                .for_each(|bytes| *bytes = (*bytes).min(8 * small));
        }
        Self {
            seed,
            family: family.unwrap_or([Family::V4, Family::V6][random.below(2)]),
            writers,
            writing: actors[random.below(2)],
            readers: [1, 1, 2, 3][random.below(4)],
            reading: actors[random.below(2)],
            buffers: buffers.and_then(|small| small.try_into().ok()),
            interrupts: random.once_in(2),
        }
    }

    /// The source of an actor's draws.
    fn random(&self, actor: usize) -> Random {
        Random::new(self.seed ^ (actor as u64 + 1) << 32)
    }
}

/// The byte that a writer sends at a position.
fn byte_of(writer: usize, position: usize) -> u8 {
    u8::try_from(writer * COUNTED + position % COUNTED).unwrap_or(u8::MAX)
}

/// Runs rounds until the time is over or `--rounds` rounds are done.
pub fn run(options: &Options) -> i32 {
    let draw = |seed| Plan::draw(seed, options.family);
    let mut bytes = 0;
    let played = rounds::run(options, "shared", draw, play, |plan| {
        bytes += plan.writers.iter().sum::<usize>();
    });
    rounds::report(
        options,
        "shared",
        played,
        &format!("{} MB", bytes / 1_000_000),
    )
}

/// One round.
fn play(plan: &Plan) {
    interrupter::prepare();
    let (listening, address) = listener(plan.family);
    if let Some(size) = plan.buffers {
        set_int(listening, libc::SOL_SOCKET, libc::SO_RCVBUF, size);
    }
    let sending = rounds::start(|| {
        sys::close(listening).expect("close");
        let socket = tcp(plan.family);
        if let Some(size) = plan.buffers {
            set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, size);
        }
        sys::connect(socket, address).expect("connect");
        send(plan, socket);
    });
    let socket = sys::accept(listening).expect("accept");
    sys::close(listening).expect("close");
    receive(plan, socket);
    rounds::expect_end(&sending, "the sender");
}

/// The end that sends.
fn send(plan: &Plan, socket: Descriptor) {
    act(plan, plan.writing, plan.writers.len(), |writer| {
        let (bytes, mut random) = (plan.writers[writer], plan.random(writer));
        writer::write(socket, writer, bytes, &mut random);
    });
    sys::shutdown(socket, libc::SHUT_WR).expect("shutdown");
    // The readers have all bytes before the connection goes.
    assert_eq!(sys::recv(socket, &mut [0_u8], libc::MSG_WAITALL), Ok(0));
    sys::close(socket).expect("close");
}

/// The end that receives, and tallies.
fn receive(plan: &Plan, socket: Descriptor) {
    // SAFETY: atomics.
    let tally: &Tally = unsafe { shared_zeroed() };
    act(plan, plan.reading, plan.readers, |reader| {
        let random = plan.random(WRITERS + reader);
        reader::read(socket, checks(plan), tally, random);
    });
    sys::close(socket).expect("close");
    for (writer, bytes) in plan.writers.iter().enumerate() {
        for value in 0..COUNTED {
            let expected = bytes / COUNTED + usize::from(value < bytes % COUNTED);
            let seen = tally.0[writer * COUNTED + value].load(Ordering::Relaxed);
            assert_eq!(seen, expected as u64, "writer {writer}, value {value}");
        }
    }
}

/// What a reader can tell from the order of its bytes.
fn checks(plan: &Plan) -> reader::Order {
    match (plan.writers.len(), plan.readers) {
        (_, 1) => reader::Order::OfEachWriter,
        (1, _) => reader::Order::WithinOneCall,
        _ => reader::Order::Unknown,
    }
}

/// Runs the actors of one end, and waits for them.
fn act(plan: &Plan, actors: Actors, count: usize, work: impl Fn(usize) + Sync) {
    let interrupted = |work: &dyn Fn()| {
        let interrupter = plan.interrupts.then(|| Interrupter::start(plan.seed));
        work();
        interrupter.into_iter().for_each(Interrupter::stop);
    };
    match actors {
        Actors::Processes => {
            let start = |actor| rounds::start(|| interrupted(&|| work(actor)));
            let children: Vec<_> = (0..count).map(start).collect();
            for child in &children {
                rounds::expect_end(child, "an actor");
            }
        }
        Actors::Threads => interrupted(&|| {
            std::thread::scope(|scope| {
                for actor in 0..count {
                    let work = &work;
                    scope.spawn(move || work(actor));
                }
            });
        }),
    }
}
