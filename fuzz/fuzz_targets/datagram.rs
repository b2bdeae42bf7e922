//! The payload of one datagram.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| punctual_proto::fuzzing::datagram(bytes));
