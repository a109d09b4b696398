//! Short run of the fuzz targets: the conformance bodies, then thousands of mutations of them, the same in
//! every run.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic fails the test, also in its helpers"
)]

#[path = "../fuzz/entry.rs"]
mod entry;

use std::io::Read;

use _transcode::base64;
use serde_json::Value;

const BODIES: &str = include_str!("../../tests/conformance/bodies.jsonl");
const REQUESTS: &str = include_str!("../../tests/conformance/http.jsonl");
const MUTATIONS: u32 = 100_000;
/// Larger seeds are tried unchanged; mutating them finds little for the time it takes.
const MUTATED_BYTES_MAX: usize = 8 << 10;
/// Excludes a request of 30 MB of filler.
const CODED_BYTES_MAX: usize = 64 << 10;
const PEAK_BYTES_MAX: u64 = 128 << 20;

fn decoded(text: &str) -> Vec<u8> {
    let mut raw = vec![0; text.len()];
    base64::decode(text.as_bytes(), &mut raw).unwrap().to_vec()
}

/// Returns the bytes of a case, compressed or not.
fn bytes_of(bytes: &Value) -> Vec<u8> {
    if let Some(plain) = bytes["base64"].as_str() {
        return decoded(plain);
    }
    let packed = decoded(bytes["zlib_base64"].as_str().unwrap());
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..])
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

fn cases(lines: &str) -> impl Iterator<Item = Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
}

/// Returns the bodies whose content type contains `kind`.
fn bodies(kind: &str) -> Vec<Vec<u8>> {
    let is_of_kind = |case: &Value| case["content_type"].as_str().unwrap().contains(kind);
    cases(BODIES)
        .filter(is_of_kind)
        .map(|case| bytes_of(&case["body"]))
        .collect()
}

/// Returns the bodies of the raw requests, each after every byte that selects a coding.
fn coded_bodies() -> Vec<Vec<u8>> {
    let body = |case: Value| {
        let request = bytes_of(&case["request"]);
        let head = memchr::memmem::find(&request, b"\r\n\r\n").map_or(request.len(), |at| at + 4);
        request[head..].to_vec()
    };
    let bodies: Vec<_> = cases(REQUESTS)
        .map(body)
        .filter(|body| (1..=CODED_BYTES_MAX).contains(&body.len()))
        .collect();
    (0..9)
        .flat_map(|coding| {
            bodies
                .iter()
                .map(move |body| [&[coding], &body[..]].concat())
        })
        .collect()
}

/// Deterministic pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound.max(1)
    }
}

/// Damages a body in one of the common ways.
fn mutate(body: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let (at, end) = (random.below(body.len()), random.below(body.len()));
    let range = at.min(end)..at.max(end);
    match random.below(7) {
        _ if body.is_empty() => body.extend_from_slice(other),
        0 => body[at] ^= 1 << random.below(8),
        1 => body[at] = [0x00, 0x7f, 0x80, 0xff, b'"', b'{'][random.below(6)],
        2 => body.truncate(at),
        3 => drop(body.drain(range)),
        4 => body.extend_from_within(range),
        5 => drop(body.splice(range, other.iter().copied())),
        _ => body.insert(at, other[random.below(other.len())]),
    }
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Runs the seeds, then repeated mutations of them.
fn run_mutations(target: fn(&[u8]), seeds: &[Vec<u8>], seed: u64) {
    for seed in seeds {
        target(seed);
    }
    let small: Vec<_> = seeds
        .iter()
        .filter(|seed_body| !seed_body.is_empty() && seed_body.len() <= MUTATED_BYTES_MAX)
        .collect();
    let mut random = Random(seed);
    for _ in 0..MUTATIONS {
        let mut body = small[random.below(small.len())].clone();
        for _ in 0..=random.below(4) {
            let other = small[random.below(small.len())];
            mutate(&mut body, other, &mut random);
        }
        target(&body);
    }
    assert!(
        peak_bytes() < PEAK_BYTES_MAX,
        "peak of {} bytes",
        peak_bytes()
    );
}

#[test]
fn unpacking_mutated_bodies_keeps_its_guarantees() {
    run_mutations(entry::unpack, &coded_bodies(), 0x5eed_0001);
}

#[test]
fn protobuf_decoding_of_mutated_bodies_keeps_its_guarantees() {
    run_mutations(entry::protobuf, &bodies("protobuf"), 0x5eed_0002);
}

#[test]
fn json_decoding_of_mutated_bodies_keeps_its_guarantees() {
    run_mutations(entry::json, &bodies("json"), 0x5eed_0003);
}
