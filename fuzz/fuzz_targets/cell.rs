//! The ready map against its model, with arbitrary words in it.
#![no_main]

#[path = "../../crates/ring/tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::cell::run(data));
