//! The queue of elements against its model, with lies of either side.
#![no_main]

#[path = "../../crates/ring/tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::queue::run(data));
