//! Shared conformance vectors, and thresholds against the specification's examples.

use serde_json::Value;

use super::super::{collector, threshold};
use super::explained;

const VECTORS: &str = include_str!("../../../../tests/conformance/sampling.json");

fn vectors() -> Vec<Value> {
    serde_json::from_str(VECTORS).unwrap()
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_default()
}

#[test]
fn every_vector_is_decided_as_expected() {
    for vector in vectors() {
        let rate = vector["probability"].as_f64();
        let rate = rate.unwrap_or_else(|| vector["percent"].as_f64().unwrap() / 100.0);
        let seed = vector["seed"].as_u64().unwrap_or_default();
        let seed = u32::try_from(seed).unwrap();
        let (trace_id, mode) = (text(&vector, "trace_id"), text(&vector, "mode"));

        let explanation =
            explained(trace_id, mode, rate, seed, text(&vector, "tracestate")).unwrap();

        assert_eq!(
            explanation.keep,
            vector["keep"].as_bool().unwrap_or(true),
            "{vector}"
        );
        let key = if mode == "hash_seed" {
            "threshold"
        } else {
            "threshold_out"
        };
        assert_eq!(
            explanation.threshold.as_deref(),
            vector[key].as_str(),
            "{vector}"
        );
        if let Some(weight) = vector.get("weight") {
            assert_eq!(explanation.weight, weight.as_f64(), "{vector}");
        }
    }
}

#[test]
fn collector_randomness_is_reproduced() {
    for vector in vectors()
        .iter()
        .filter(|vector| vector["mode"] == "hash_seed")
    {
        let trace_id = u128::from_str_radix(text(vector, "trace_id"), 16)
            .unwrap()
            .to_be_bytes();
        let seed = u32::try_from(vector["seed"].as_u64().unwrap()).unwrap();

        let randomness = collector::Hash::seeded(seed).randomness(&trace_id);

        assert_eq!(
            threshold::hex_in_full(randomness).as_str(),
            text(vector, "randomness")
        );
    }
}

#[test]
fn thresholds_are_rounded_as_in_the_specification() {
    let cases = [
        (1.0, "0"),
        (0.5, "8"),
        (0.99, "028f"),
        (1.0 / 3.0, "aaab"),
        (0.1, "e666"),
        (0.01, "fd70a"),
        (0.001, "ffbe77"),
        (1e-4, "fff9724"),
        (1.0 / 65_536.0, "ffff"),
        (1.0 / 72_057_594_037_927_936.0, "ffffffffffffff"),
    ];
    for (probability, expected) in cases {
        let rate = threshold::Rate::new(probability);

        assert_eq!(
            threshold::hex(rate.threshold).as_str(),
            expected,
            "{probability}"
        );
    }
    assert_eq!(threshold::Rate::new(0.0).threshold, threshold::NEVER);
    assert_eq!(threshold::Rate::new(1e-17).threshold, threshold::NEVER);
}

#[test]
fn collector_buckets_are_truncated_not_rounded() {
    let buckets = |percent: f64| 0x4000 - (collector::rate(percent / 100.0).threshold >> 42);

    assert_eq!(buckets(15.3), 2506);
    assert_eq!(buckets(100.0), 0x4000);
    assert_eq!(buckets(0.0062), 1);
    assert_eq!(buckets(0.0061), 0);
}
