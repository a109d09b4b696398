//! Fuzz target: JSON requests, single or one per line, are decoded or refused; visitor calls are in order.
#![no_main]

#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::json(input));
