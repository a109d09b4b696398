//! A short run of the fuzz targets: the conformance bodies, then thousands of mutations of them, the
//! same ones each time.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic in a test is the point, also in its helpers"
)]

#[path = "../fuzz/entry.rs"]
mod entry;

use std::io::Read;

use _transcode::base64;
use serde_json::Value;

const BODIES: &str = include_str!("../../tests/conformance/bodies.jsonl");
const REQUESTS: &str = include_str!("../../tests/conformance/http.jsonl");
const MUTATIONS: u32 = 100_000;
/// Larger seeds are tried as they are; their mutations would teach little for their time.
const MUTATED_BYTES_MAX: usize = 8 << 10;
/// One request is 30 MB of nothing.
const CODED_BYTES_MAX: usize = 64 << 10;
const PEAK_BYTES_MAX: u64 = 128 << 20;

fn decoded(text: &str) -> Vec<u8> {
    let mut raw = Vec::new();
    assert!(base64::decode(text.as_bytes(), |byte| raw.push(byte)));
    raw
}

/// Bytes of a case, packed or not.
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

/// Bodies whose content type names `kind`.
fn bodies(kind: &str) -> Vec<Vec<u8>> {
    let is_of_kind = |case: &Value| case["content_type"].as_str().unwrap().contains(kind);
    cases(BODIES)
        .filter(is_of_kind)
        .map(|case| bytes_of(&case["body"]))
        .collect()
}

/// Bodies of the raw requests, behind every byte that names a coding.
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

/// Numbers without surprises: the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound.max(1)
    }
}

/// Changes a body in one of the ways in which bodies break.
fn mutate(body: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let (at, end) = (dice.below(body.len()), dice.below(body.len()));
    let range = at.min(end)..at.max(end);
    match dice.below(7) {
        _ if body.is_empty() => body.extend_from_slice(other),
        0 => body[at] ^= 1 << dice.below(8),
        1 => body[at] = [0x00, 0x7f, 0x80, 0xff, b'"', b'{'][dice.below(6)],
        2 => body.truncate(at),
        3 => drop(body.drain(range)),
        4 => body.extend_from_within(range),
        5 => drop(body.splice(range, other.iter().copied())),
        _ => body.insert(at, other[dice.below(other.len())]),
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

/// Tries the seeds, then mutations of mutations of them.
fn survives(target: fn(&[u8]), seeds: &[Vec<u8>], seed: u64) {
    for seed in seeds {
        target(seed);
    }
    let small: Vec<_> = seeds
        .iter()
        .filter(|it| !it.is_empty() && it.len() <= MUTATED_BYTES_MAX)
        .collect();
    let mut dice = Dice(seed);
    for _ in 0..MUTATIONS {
        let mut body = small[dice.below(small.len())].clone();
        for _ in 0..=dice.below(4) {
            let other = small[dice.below(small.len())];
            mutate(&mut body, other, &mut dice);
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
fn unpacking_survives_mutated_bodies() {
    survives(entry::unpack, &coded_bodies(), 0x5eed_0001);
}

#[test]
fn the_protobuf_decoder_survives_mutated_bodies() {
    survives(entry::protobuf, &bodies("protobuf"), 0x5eed_0002);
}

#[test]
fn the_json_decoder_survives_mutated_bodies() {
    survives(entry::json, &bodies("json"), 0x5eed_0003);
}
