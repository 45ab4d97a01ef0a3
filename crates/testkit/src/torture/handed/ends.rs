//! The two ends of a run of `bytes` or `between` with the mode `handed`: the process of each connection hands it on.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use netchannel_testkit::sys::Descriptor;

use super::end::{End, script};
use super::stages::go_on;
use crate::script::{Role, Script};
use crate::{holders, open, receiver};

/// Serves connections until a client sends the stop number.
pub fn serve(listening: Descriptor, seed: u64) {
    holders::serve(listening, |number, socket| {
        go_on(End::begin(seed.wrapping_add(number), Role::Server, socket));
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
        let seed = seed.wrapping_add(number);
        let script = script(seed);
        let bytes = script.to_server + script.to_client;
        receiver::BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        move || {
            let socket = open(address, &Script { number, ..script });
            go_on(End::begin(seed, Role::Client, socket));
        }
    });
}
