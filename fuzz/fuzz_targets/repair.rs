//! A receiver's redundancy groups.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| punctual_proto::fuzzing::repair(bytes));
