//! Explains a sampling decision to an operator.

use super::{Mode, Sampler, Subject, threshold, tracestate};

/// An explained decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Whether the span would be stored.
    pub keep: bool,
    /// How many spans it would represent.
    pub weight: Option<f64>,
    /// The threshold in tracestate syntax.
    pub threshold: Option<String>,
    /// Reason, short and stable.
    pub reason: String,
    /// Tracestate fields that are malformed and treated as absent.
    pub ignored: Vec<&'static str>,
}

/// Explains the decision about a trace at one rate.
///
/// # Errors
/// If the trace id, the mode or the rate is invalid.
pub fn explain(
    trace_id_hex: &str,
    mode: &str,
    rate: f64,
    seed: u32,
    trace_state: &str,
) -> Result<Explained, String> {
    let mode = Mode::from_name(mode).ok_or_else(|| {
        format!("sampling mode '{mode}'; expected off, equalizing, proportional or hash_seed")
    })?;
    let subject = Subject {
        trace_id: trace_id_from_hex(trace_id_hex)?,
        trace_state: trace_state.as_bytes(),
        project: "",
        environment: "",
        service: "",
        drain: "",
        priority: None,
    };
    let sampler = Sampler::new(mode, rate, seed, Vec::new())?;
    let decision = sampler.decide(&subject, &mut Vec::new());
    Ok(Explained {
        keep: decision.keep,
        weight: decision.weight,
        threshold: decision
            .threshold
            .map(|threshold| threshold::hex(threshold).as_str().to_owned()),
        reason: decision.reason.to_owned(),
        ignored: tracestate::unread(subject.trace_state),
    })
}

fn trace_id_from_hex(text: &str) -> Result<[u8; 16], String> {
    let wrong = || {
        format!(
            "trace id of {} characters; expected 32 hex digits",
            text.len()
        )
    };
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u128::from_str_radix(text, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| wrong())
}
