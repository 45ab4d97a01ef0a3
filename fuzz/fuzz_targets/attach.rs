//! Any life of programs in the attach protocol, against a daemon in this process.
#![no_main]

use std::sync::OnceLock;

#[path = "../../crates/daemon/tests/life/mod.rs"]
mod life;

use life::support::{Served, small};

static SERVED: OnceLock<Served> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    life::attach(SERVED.get_or_init(|| Served::new(small(), None)), data);
});
