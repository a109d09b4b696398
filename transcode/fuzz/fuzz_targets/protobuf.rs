//! Fuzz target: protobuf requests are decoded or refused; visitor calls are in order.
#![no_main]

#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::protobuf(input));
