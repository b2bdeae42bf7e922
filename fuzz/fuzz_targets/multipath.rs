//! A whole session, whose peer does anything at all with its paths: opens, abandons and moves them, says what it likes of them, and of all else.

#![no_main]

#[path = "../../crates/punctual-proto/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::wanderer::run(bytes));
