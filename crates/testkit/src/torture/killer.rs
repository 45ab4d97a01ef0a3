//! Either end of connections is killed at a random moment, repeatedly. The survivor sees what TCP shows: a correct part
//! of the stream, then its end or a reset, in time. After an end without a reset it has everything that the killed
//! process's calls had accepted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{
    Baton, Child, Family, Random, count_descriptors, fork_child, listener, set_nonblocking,
    shared_zeroed,
};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::flow::Flow;
use crate::readiness::{Kind, Loop};
use crate::receiver::Receiver;
use crate::script::{Role, Script};
use crate::sender::Sender;
use crate::step::keep_urgent_bytes;
use crate::{Options, accept_script, try_open};

const MOST: usize = 4;

/// A larger increase of descriptors after the first rounds is a leak and not a pool.
const POOL: usize = 8;

/// How many bytes the victim's sends accepted, per connection, in memory that survives the victim.
struct Ledger(&'static [AtomicU64; MOST]);

impl Ledger {
    fn new() -> Self {
        // SAFETY: only atomics, for which zeroes are valid.
        Self(unsafe { shared_zeroed() })
    }

    fn clear(&self) {
        self.0
            .iter()
            .for_each(|entry| entry.store(0, Ordering::SeqCst));
    }
}

/// Runs rounds until the time is over or `--rounds` rounds are done.
pub fn run(options: &Options) {
    let mut random = Random::new(options.seed);
    let ledger = Ledger::new();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut rounds = 0_u64;
    let mut start_count = 0;
    let mut broken = 0;
    while Instant::now() < end && options.rounds.is_none_or(|most| rounds < most) {
        sys::alarm(30);
        ledger.clear();
        broken += round(options, &mut random, &ledger, rounds);
        rounds += 1;
        if rounds == 10 {
            // Descriptors that a library keeps for later use are open by now.
            start_count = count_descriptors();
        }
    }
    if rounds > 10 {
        let now = count_descriptors();
        assert!(
            now <= start_count + POOL,
            "{now} descriptors, {start_count} after ten rounds"
        );
    }
    println!(
        "PASS killer: seed {}, {rounds} rounds, {broken} connections broken",
        options.seed
    );
}

/// Runs one child with some connections and kills it in the middle. Returns how many connections there were.
fn round(options: &Options, random: &mut Random, ledger: &Ledger, number: u64) -> usize {
    let family =
        if options.family == Some(Family::V6) || options.family.is_none() && number % 2 == 1 {
            Family::V6
        } else {
            Family::V4
        };
    let count = random.between(1, MOST);
    let seed = random.number();
    let delay = Duration::from_micros(random.below(4_000) as u64);
    let kind = [Kind::Poll, Kind::Level, Kind::Edge][random.below(3)];
    if random.once_in(2) {
        let (listening, address) = listener(family);
        keep_urgent_bytes(listening);
        let child = fork_child(|| {
            sys::close(listening).expect("close");
            let open = |index: usize| {
                let script = Script::killed(seed, index as u64);
                try_open(address, &script)
                    .expect("connect")
                    .expect("the parent listens")
            };
            victim((0..count).map(open).collect(), seed, Role::Client, ledger);
        });
        set_nonblocking(listening);
        survive_as_server(listening, seed, kind, ledger, &child, delay)
    } else {
        let ready = Baton::new();
        let child = fork_child(|| {
            let (listening, address) = listener(family);
            keep_urgent_bytes(listening);
            ready.send(u64::from(address.port()));
            let mut sockets = Vec::new();
            for _ in 0..count {
                let socket = sys::accept(listening).expect("accept");
                let index = accept_script(socket)
                    .and_then(|number| usize::try_from(number).ok())
                    .expect("a small number");
                sockets.push((index, socket));
            }
            sockets.sort_unstable();
            let sockets = sockets.into_iter().map(|(_, socket)| socket).collect();
            victim(sockets, seed, Role::Server, ledger);
        });
        let port = u16::try_from(ready.receive()).expect("a port");
        ready.close();
        survive_as_client(family, port, count, seed, kind, ledger, &child, delay)
    }
}

/// Sends and receives on all connections until it is killed, and records how many bytes its sends accepted.
fn victim(sockets: Vec<Descriptor>, seed: u64, role: Role, ledger: &Ledger) -> ! {
    sockets.iter().for_each(|socket| set_nonblocking(*socket));
    let mut ends: Vec<_> = sockets
        .iter()
        .enumerate()
        .map(|(index, socket)| {
            let script = Script::killed(seed, index as u64);
            (
                Sender::new(*socket, &script, role),
                Receiver::new(*socket, &script, role),
            )
        })
        .collect();
    loop {
        for (index, (sender, receiver)) in ends.iter_mut().enumerate() {
            let _ = sender.step();
            ledger.0[index].store(sender.position as u64, Ordering::SeqCst);
            let _ = receiver.step();
        }
    }
}

/// Accepts connections while the child lives, kills it, and accepts the connections that it left.
fn survive_as_server(
    listening: Descriptor,
    seed: u64,
    kind: Kind,
    ledger: &Ledger,
    child: &Child,
    delay: Duration,
) -> usize {
    let mut flows = Loop::new(kind);
    let mut numbers = Vec::new();
    let take = |flows: &mut Loop, numbers: &mut Vec<usize>| {
        while let Ok(socket) = sys::accept(listening) {
            match crate::read_number(socket) {
                Some(number) => {
                    numbers.push(usize::try_from(number).expect("a small number"));
                    flows.add(Flow::new(
                        socket,
                        Script::killed(seed, number),
                        Role::Server,
                    ));
                }
                None => sys::close(socket).expect("close"),
            }
        }
    };
    let end = Instant::now() + delay;
    while Instant::now() < end {
        take(&mut flows, &mut numbers);
        if flows.len() == 0 {
            std::thread::yield_now();
        } else {
            flows.turn(1);
        }
    }
    child.kill();
    take(&mut flows, &mut numbers);
    sys::close(listening).expect("close");
    finish(flows, &numbers, ledger)
}

/// Connects while the child lives, kills it, and checks that the connections end.
#[expect(clippy::too_many_arguments, reason = "a round's draw, used once")]
fn survive_as_client(
    family: Family,
    port: u16,
    count: usize,
    seed: u64,
    kind: Kind,
    ledger: &Ledger,
    child: &Child,
    delay: Duration,
) -> usize {
    let mut flows = Loop::new(kind);
    let mut numbers = Vec::new();
    for index in 0..count {
        let script = Script::killed(seed, index as u64);
        let socket = try_open(family.loopback(port), &script).expect("the child listens");
        if let Some(socket) = socket {
            numbers.push(index);
            flows.add(Flow::new(socket, script, Role::Client));
        }
    }
    let end = Instant::now() + delay;
    while Instant::now() < end {
        flows.turn(1);
    }
    child.kill();
    expect_refusal(family, port);
    finish(flows, &numbers, ledger)
}

/// The killed process no longer listens: SPECIFICATION 8.18 says how soon that is known.
fn expect_refusal(family: Family, port: u16) {
    let start = Instant::now();
    loop {
        match try_open(family.loopback(port), &Script::killed(0, 99)) {
            Err(errno) => return assert_eq!(errno, Errno(libc::ECONNREFUSED)),
            Ok(late) => late.map_or((), |late| sys::close(late).expect("close")),
        }
        let passed = start.elapsed();
        assert!(passed < Duration::from_secs(1), "a dead listener accepts");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all connections have ended, and compares with the bytes that the killed process had sent.
fn finish(mut flows: Loop, numbers: &[usize], ledger: &Ledger) -> usize {
    let start = Instant::now();
    while flows.flows().any(|flow| !flow.has_outcome()) {
        let late = start.elapsed() > Duration::from_secs(10);
        assert!(!late, "a connection to a dead process does not end");
        flows.turn(100);
    }
    let mut received: Vec<_> = flows
        .flows()
        .map(|flow| (flow.key(), flow.received()))
        .collect();
    received.sort_unstable();
    for (number, (bytes, is_all)) in received {
        let sent = usize::try_from(ledger.0[number].load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        assert!(
            !is_all || bytes >= sent,
            "the stream ended after {bytes}, {sent} were sent"
        );
    }
    let count = numbers.len();
    flows.close();
    count
}
