//! A control stream that goes on elsewhere, in any chunks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| punctual_proto::fuzzing::continuation(bytes));
