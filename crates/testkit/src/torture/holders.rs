//! The two ends of a run whose connections have a process of their own on either side.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use netchannel_testkit::support::Child;
use netchannel_testkit::sys::{self, Descriptor};

use crate::{STOP, accept_script, interrupter, rounds};

/// The most connections at the same time.
const MOST: usize = 4;

/// Processes that have a connection.
struct Holders {
    all: Vec<Child>,
    /// Other children of this process.
    others: Vec<libc::pid_t>,
}

impl Holders {
    /// None yet. Those that are handed a connection by one that ends are children of this process.
    fn begin() -> Self {
        interrupter::prepare();
        sys::adopt_orphans();
        Self {
            all: Vec::new(),
            others: rounds::children(),
        }
    }

    /// Starts one more, after the oldest one has ended where there are many.
    fn start(&mut self, most: usize, work: impl FnOnce()) {
        if self.all.len() >= most {
            rounds::expect_end_or_kill(&self.all.remove(0), "a holder");
        }
        self.all.push(rounds::start(work));
    }

    fn end(self) {
        self.all
            .iter()
            .for_each(|child| rounds::expect_end_or_kill(child, "a holder"));
        rounds::expect_all_end_or_kill(&self.others);
    }
}

/// Serves connections until a client sends the stop number: a process for each does `work` with its number and socket.
pub fn serve(listening: Descriptor, work: impl Fn(u64, Descriptor)) {
    let mut holders = Holders::begin();
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
            work(number, socket);
        });
        sys::close(socket).expect("close");
    }
}

/// Opens connections until `end`: a process for each does what `begin` returns for its number.
pub fn drive<Work: FnOnce()>(
    connections: usize,
    numbers: &AtomicU64,
    end: Instant,
    begin: impl Fn(u64) -> Work,
) {
    let mut holders = Holders::begin();
    while Instant::now() < end {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        holders.start(connections.min(MOST), begin(number));
    }
    holders.end();
}
