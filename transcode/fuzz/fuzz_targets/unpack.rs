//! Fuzz target: bodies in every coding are decompressed completely or refused, never over the limit.
#![no_main]

#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::unpack(input));
