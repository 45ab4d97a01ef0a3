//! The two ends of a run of `bytes` or `between` with the mode `handed`: each connection has a process of its own on
//! either side, which hands it on.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use netchannel_testkit::support::Child;
use netchannel_testkit::sys::{self, Descriptor};

use super::end::{End, script};
use super::stages::go_on;
use crate::script::{Role, Script};
use crate::{STOP, accept_script, interrupter, open, receiver, rounds};

/// The most connections at the same time.
const MOST: usize = 4;

/// Processes that have a connection.
#[derive(Default)]
struct Holders(Vec<Child>);

impl Holders {
    /// Starts one more, after the oldest one has ended where there are many.
    fn start(&mut self, most: usize, work: impl FnOnce()) {
        if self.0.len() >= most {
            rounds::expect_end(&self.0.remove(0), "a holder");
        }
        self.0.push(rounds::start(work));
    }

    fn end(self) {
        self.0
            .iter()
            .for_each(|child| rounds::expect_end(child, "a holder"));
    }
}

/// Serves connections until a client sends the stop number.
pub fn serve(listening: Descriptor, seed: u64) {
    interrupter::prepare();
    let mut holders = Holders::default();
    loop {
        let socket = sys::accept(listening).expect("accept");
        let Some(number) = accept_script(socket) else {
            sys::close(socket).expect("close");
            continue;
        };
        if number == STOP {
            holders.end();
            return sys::close(socket).expect("close");
        }
        holders.start(2 * MOST, || {
            sys::close(listening).expect("close");
            go_on(End::begin(seed.wrapping_add(number), Role::Server, socket));
        });
        sys::close(socket).expect("close");
    }
}

/// Opens connections until `end`.
pub fn drive(
    address: SocketAddr,
    seed: u64,
    connections: usize,
    numbers: &AtomicU64,
    end: Instant,
) {
    interrupter::prepare();
    let mut holders = Holders::default();
    while Instant::now() < end {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let seed = seed.wrapping_add(number);
        let script = script(seed);
        holders.start(connections.min(MOST), || {
            let socket = open(address, &Script { number, ..script });
            go_on(End::begin(seed, Role::Client, socket));
        });
        let bytes = script.to_server + script.to_client;
        receiver::BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    holders.end();
}
