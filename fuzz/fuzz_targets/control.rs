//! A control stream that arrives in any chunks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| punctual_proto::fuzzing::control(bytes));
