//! The two ends of a run of `bytes` or `between` with the mode `shared`: the client of each connection sends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use netchannel_testkit::sys::Descriptor;

use super::{Plan, receive, send};
use crate::script::Script;
use crate::{holders, open, receiver};

/// Serves connections until a client sends the stop number.
pub fn serve(listening: Descriptor, seed: u64) {
    holders::serve(listening, |number, socket| {
        receive(&Plan::draw(seed.wrapping_add(number), None), socket);
    });
}

/// Opens connections until `end`.
pub fn drive(
    address: SocketAddr,
    seed: u64,
    connections: usize,
    numbers: &AtomicU64,
    end: Instant,
) {
    holders::drive(connections, numbers, end, |number| {
        let plan = Plan::draw(seed.wrapping_add(number), None);
        let bytes: usize = plan.writers.iter().sum();
        receiver::BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        move || {
            let script = Script {
                buffers: plan.buffers,
                ..Script::brief(seed, number)
            };
            send(&plan, open(address, &script));
        }
    });
}
