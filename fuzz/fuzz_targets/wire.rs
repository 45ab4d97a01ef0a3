//! The bytes of a channel, at once and in pieces: no panic, and the same frames.
#![no_main]

#[path = "../../crates/wire/tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::run(data));
