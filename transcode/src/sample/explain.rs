//! Explains a sampling decision to an operator: the decision about one trace, with its inputs.

use super::threshold::{hex, hex_in_full};
use super::tracestate::{Arrival, malformed_fields};
use super::{Sampler, Subject};

/// A decision and its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Whether the span would be stored.
    pub keep: bool,
    /// How many spans it would represent.
    pub weight: Option<f64>,
    /// The effective threshold in tracestate syntax.
    pub threshold: Option<String>,
    /// Reason, short and stable: the column `SampleReason`.
    pub reason: String,
    /// Tracestate fields that are malformed and treated as absent.
    pub ignored: Vec<&'static str>,
    /// Index of the first matching rule; `None` if no rule matches.
    pub rule: Option<usize>,
    /// Fourteen hex digits, compared with the threshold.
    pub randomness: String,
    /// Source of the randomness.
    pub randomness_from: &'static str,
    /// The threshold that the span arrived with, in tracestate syntax.
    pub arriving_threshold: Option<String>,
}

/// Explains what this sampler decides about a span of this trace.
///
/// # Errors
/// If the trace id is invalid.
pub fn explain(
    sampler: &Sampler,
    trace_id_hex: &str,
    subject: &Subject<'_>,
) -> Result<Explained, String> {
    let subject = Subject {
        trace_id: trace_id_from_hex(trace_id_hex)?,
        ..*subject
    };
    // The function that decides about stored spans, so that an explanation cannot differ from it.
    let decision = sampler.decide(&subject, &mut Vec::new());
    let arrival = Arrival::read(subject.trace_state);
    let (randomness, randomness_from) = randomness(sampler, &arrival, &subject);
    Ok(Explained {
        keep: decision.keep,
        weight: decision.weight,
        threshold: decision.threshold.map(formatted),
        reason: decision.reason.to_owned(),
        ignored: malformed_fields(subject.trace_state),
        rule: sampler.rule_of(&subject),
        randomness: hex_in_full(randomness).as_str().to_owned(),
        randomness_from,
        arriving_threshold: arrival.threshold.map(formatted),
    })
}

fn randomness(sampler: &Sampler, arrival: &Arrival, subject: &Subject<'_>) -> (u64, &'static str) {
    let source = if arrival.randomness.is_some() {
        "rv of the trace state"
    } else if sampler.is_hashed(arrival) {
        "hash of the trace id and the seed"
    } else {
        "last 7 bytes of the trace id"
    };
    (sampler.randomness(arrival, subject), source)
}

fn formatted(threshold: u64) -> String {
    hex(threshold).as_str().to_owned()
}

fn trace_id_from_hex(text: &str) -> Result<[u8; 16], String> {
    let wrong = || {
        format!(
            "trace id of {} characters; expected 32 hex digits",
            text.len()
        )
    };
    // `from_str_radix` alone would accept a leading plus sign.
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u128::from_str_radix(text, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| wrong())
}
