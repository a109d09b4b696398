//! How fast the core is by itself: `cargo run --release --example bench_core [KIND] [--once]`.
//!
//! Prints, per kind of work, spans a second (median of several rounds, with the slowest and the fastest)
//! and bytes a span. `--once` does every body once instead, for counting instructions:
//!
//! ```sh
//! valgrind --tool=callgrind --toggle-collect='*Kind*pass*' \
//!     target/release/examples/bench_core protobuf-decode --once
//! ```

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "reads only what it wrote itself"
)]

mod json;
mod payload;
mod protobuf;
mod silence;

use std::hint::black_box;
use std::time::{Duration, Instant};

use _transcode::limits::Limits;
use _transcode::otlp;
use payload::{Dice, SPANS};
use silence::Silence;

const DELIVERIES: usize = 16;
const ROUNDS: usize = 15;
const ROUND_MIN: Duration = Duration::from_millis(60);

/// One kind of work: what is done with each body; the bytes it makes.
struct Kind {
    name: &'static str,
    bodies: Vec<Vec<u8>>,
    work: fn(&[u8]) -> usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_once = arguments.iter().any(|argument| argument == "--once");
    let wanted = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let kinds = kinds();
    for kind in kinds
        .iter()
        .filter(|kind| wanted.is_none_or(|name| name == kind.name))
    {
        if is_once {
            println!(
                "{} {} spans, {} bytes out",
                kind.name,
                kind.spans(),
                kind.pass()
            );
        } else {
            kind.measure();
        }
    }
}

fn kinds() -> Vec<Kind> {
    let mut dice = Dice(1);
    let deliveries: Vec<_> = (0..DELIVERIES)
        .map(|_| payload::delivery(&mut dice))
        .collect();
    let of_protobuf = || {
        deliveries
            .iter()
            .map(|delivery| protobuf::body(delivery))
            .collect()
    };
    let of_json: Vec<Vec<u8>> = deliveries
        .iter()
        .map(|delivery| json::body(delivery))
        .collect();
    vec![
        Kind {
            name: "protobuf-decode",
            bodies: of_protobuf(),
            work: decode_protobuf,
        },
        Kind {
            name: "json-walk",
            bodies: of_json,
            work: |body| body.len(),
        },
    ]
}

fn decode_protobuf(body: &[u8]) -> usize {
    let mut silence = Silence::default();
    otlp::decode(body, &Limits::default(), &mut silence).expect("a valid body");
    assert_eq!(silence.span_count, SPANS);
    silence.heard_bytes
}

impl Kind {
    fn spans(&self) -> usize {
        self.bodies.len() * SPANS
    }

    /// Every body once; the bytes made of them. A function of its own for whoever counts instructions.
    #[inline(never)]
    fn pass(&self) -> usize {
        self.bodies
            .iter()
            .map(|body| black_box((self.work)(black_box(body))))
            .sum()
    }

    fn measure(&self) {
        let mut ns_per_span: Vec<f64> = (0..ROUNDS).map(|_| self.round()).collect();
        ns_per_span.sort_by(f64::total_cmp);
        let rate = |ns: f64| 1e9 / ns;
        let (fastest, median, slowest) = (
            ns_per_span[0],
            ns_per_span[ROUNDS / 2],
            ns_per_span[ROUNDS - 1],
        );
        let bytes_in: usize = self.bodies.iter().map(Vec::len).sum();
        println!(
            "{:<18} {:>10.0} spans/s ({:.0} to {:.0})  {median:>7.1} ns/span  {} bytes/span in, {} out",
            self.name,
            rate(median),
            rate(slowest),
            rate(fastest),
            bytes_in / self.spans(),
            self.pass() / self.spans(),
        );
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a measurement is no more precise"
    )]
    fn round(&self) -> f64 {
        let (start, mut passes) = (Instant::now(), 0);
        while start.elapsed() < ROUND_MIN {
            self.pass();
            passes += 1;
        }
        start.elapsed().as_nanos() as f64 / (passes * self.spans()) as f64
    }
}
