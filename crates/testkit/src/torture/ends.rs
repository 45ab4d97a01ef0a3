//! The two ends of a run of `bytes`, on one host or two.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Family, count_descriptors, tcp};
use netchannel_testkit::sys::{self, Descriptor};

use crate::interrupter::Interrupter;
use crate::{Mode, Options, STOP, blocking, handed, readiness, receiver, send_number, shared};

/// How many descriptors a library may keep for later use when all connections have ended, however many there were
/// (thousands): some pools of 64, or one for each of the 16 processes that were connected last.
const KEPT: usize = 512;

fn watchdog(options: &Options, duration: Duration) {
    let seconds = duration.as_secs() + options.patience.as_secs() + 20;
    sys::alarm(u32::try_from(seconds).unwrap_or(60));
}

/// Serves connections until a client sends the stop number, and checks that no more descriptors are open than before.
pub fn serve(listening: Descriptor, options: &Options, mode: Mode, duration: Duration) {
    let Options {
        seed,
        threads,
        patience,
        ..
    } = *options;
    watchdog(options, duration);
    let before = count_descriptors();
    match mode {
        Mode::Blocking => interrupted(seed, || blocking::serve(listening, seed)),
        Mode::Readiness(kind) => several(threads, move || {
            readiness::serve(listening, seed, kind, patience);
        }),
        Mode::Handed => handed::serve(listening, seed),
        Mode::Shared => shared::serve(listening, seed),
    }
    let after = count_descriptors();
    assert!(
        after <= before + KEPT,
        "{after} descriptors are left in the server of {before}"
    );
}

/// Opens connections for a while, then stops the server. Returns the line to print.
pub fn drive(address: SocketAddr, options: &Options, mode: Mode, duration: Duration) -> String {
    let Options {
        seed,
        connections,
        threads,
        patience,
        ..
    } = *options;
    watchdog(options, duration);
    let numbers = Arc::new(AtomicU64::new(0));
    let before = receiver::BYTES.load(Ordering::Relaxed);
    let end = Instant::now() + duration;
    match mode {
        Mode::Blocking => interrupted(!seed, || {
            blocking::drive(address, seed, connections, &numbers, end);
        }),
        Mode::Readiness(kind) => {
            let numbers = Arc::clone(&numbers);
            let plan = readiness::Plan {
                address,
                seed,
                connections: connections.div_ceil(threads),
                kind,
                end,
                patience,
            };
            several(threads, move || readiness::drive(plan, &numbers));
        }
        Mode::Handed => handed::drive(address, seed, connections, &numbers, end),
        Mode::Shared => shared::drive(address, seed, connections, &numbers, end),
    }
    let stops = match mode {
        Mode::Blocking | Mode::Handed | Mode::Shared => 1,
        Mode::Readiness(_) => threads,
    };
    let family = Family::of(address);
    for _ in 0..stops {
        let socket = tcp(family);
        sys::connect(socket, address).expect("connect");
        send_number(socket, STOP).expect("send");
        // The loop that stops closes this connection. The next stop number may be sent only then, or one loop would
        // take both.
        let _ = sys::recv(socket, &mut [0_u8], 0);
        sys::close(socket).expect("close");
    }
    let bytes = receiver::BYTES.load(Ordering::Relaxed) - before;
    format!(
        "{} connections, {} MB received",
        numbers.load(Ordering::Relaxed),
        bytes / 1_000_000
    )
}

fn interrupted(seed: u64, work: impl FnOnce()) {
    let interrupter = Interrupter::start(seed);
    work();
    interrupter.stop();
}

fn several(threads: usize, work: impl Fn() + Send + Clone + 'static) {
    let handles: Vec<_> = (0..threads)
        .map(|_| std::thread::spawn(work.clone()))
        .collect();
    for handle in handles {
        handle.join().expect("a panic ends the process");
    }
}
