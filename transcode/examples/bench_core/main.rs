//! Benchmark of the core alone: `cargo run --release --example bench_core [KIND] [--once]`.
//!
//! Prints, per kind of work, spans per second of processor time (median of several rounds, with the slowest
//! and the fastest) and bytes per span. `--once` processes every body once, for counting instructions:
//!
//! ```sh
//! valgrind --tool=callgrind --toggle-collect='*Kind*pass*' \
//!     target/release/examples/bench_core protobuf-decode --once
//! ```

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "reads only data that it wrote itself"
)]

#[path = "../../tests/support/encode.rs"]
mod encode;
mod json;
mod null_visitor;
mod payload;
mod protobuf;
mod stopwatch;
mod work;

use std::hint::black_box;
use std::time::Duration;

use _transcode::group;
use payload::{Random, SPANS};
use stopwatch::Stopwatch;
use work::Work;

const DELIVERIES: usize = 16;
const ROUNDS: usize = 15;
const ROUND_MIN: Duration = Duration::from_millis(100);

/// One kind of work: the function to measure, its input bodies, and the bytes that it produces.
struct Kind {
    name: &'static str,
    bodies: Vec<Vec<u8>>,
    bodies_at_a_time: usize,
    work: Work,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_once = arguments.iter().any(|argument| argument == "--once");
    let wanted = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let is_wanted = |kind: &Kind| wanted.is_none_or(|name| name == kind.name);
    for mut kind in kinds().into_iter().filter(is_wanted) {
        if is_once {
            let bytes_out = kind.pass();
            println!(
                "{} {} spans, {bytes_out} bytes out",
                kind.name,
                kind.spans()
            );
        } else {
            kind.measure();
        }
    }
}

fn kinds() -> Vec<Kind> {
    let mut random = Random(1);
    let deliveries: Vec<_> = (0..DELIVERIES)
        .map(|_| payload::delivery(&mut random))
        .collect();
    let protobuf: Vec<_> = deliveries
        .iter()
        .map(|delivery| protobuf::body(delivery))
        .collect();
    let json: Vec<_> = deliveries
        .iter()
        .map(|delivery| json::body(delivery))
        .collect();
    let kind = |name, bodies: &Vec<_>, bodies_at_a_time, work| Kind {
        name,
        bodies: bodies.clone(),
        bodies_at_a_time,
        work,
    };
    vec![
        kind(
            "protobuf-decode",
            &protobuf,
            1,
            Box::new(work::decode_protobuf),
        ),
        kind(
            "protobuf-commit",
            &protobuf,
            1,
            work::commit(group::Kind::Protobuf),
        ),
        kind(
            "protobuf-commit-8",
            &protobuf,
            8,
            work::commit(group::Kind::Protobuf),
        ),
        kind("json-decode", &json, 1, work::decode_json()),
        kind("json-commit", &json, 1, work::commit(group::Kind::Json)),
        kind("json-commit-8", &json, 8, work::commit(group::Kind::Json)),
    ]
}

impl Kind {
    fn spans(&self) -> usize {
        self.bodies.len() * SPANS
    }

    /// Processes every body once. Returns the bytes produced. A separate function, so that profilers can
    /// select it.
    #[inline(never)]
    fn pass(&mut self) -> usize {
        let groups = self.bodies.chunks(self.bodies_at_a_time);
        groups
            .map(|bodies| black_box((self.work)(black_box(bodies))))
            .sum()
    }

    fn measure(&mut self) {
        let bytes_out = self.pass() / self.spans();
        let bytes_in = self.bodies.iter().map(Vec::len).sum::<usize>() / self.spans();
        let mut ns_per_span: Vec<f64> = (0..ROUNDS).map(|_| self.round()).collect();
        ns_per_span.sort_by(f64::total_cmp);
        let rate = |ns: f64| 1e9 / ns;
        let (fastest, median, slowest) = (
            ns_per_span[0],
            ns_per_span[ROUNDS / 2],
            ns_per_span[ROUNDS - 1],
        );
        println!(
            "{:<18} {:>10.0} spans/s ({:.0} to {:.0}), {median:.0} ns/span; {bytes_in} bytes/span in, {bytes_out} out",
            self.name,
            rate(median),
            rate(slowest),
            rate(fastest),
        );
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "measurements are less precise than f64"
    )]
    fn round(&mut self) -> f64 {
        let (stopwatch, mut passes) = (Stopwatch::start(), 0);
        loop {
            self.pass();
            passes += 1;
            let elapsed = stopwatch.elapsed();
            if elapsed >= ROUND_MIN {
                return elapsed.as_nanos() as f64 / (passes * self.spans()) as f64;
            }
        }
    }
}
