//! A byte ring and its moves against their model, with lies of either side.
#![no_main]

#[path = "../../crates/ring/tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::bytes::run(data));
