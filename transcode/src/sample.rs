//! Sampling: keeps everything, until rules say otherwise.

/// What a decision may look at.
pub struct Subject<'a> {
    /// Sixteen bytes.
    pub trace_id: [u8; 16],
    /// As sent.
    pub trace_state: &'a [u8],
    /// Whose span it is.
    pub project: &'a str,
    /// Of the deployment.
    pub environment: &'a str,
    /// `service.name`.
    pub service: &'a str,
    /// Who sent it.
    pub drain: &'a str,
    /// `sampling.priority` of the span.
    pub priority: Option<i64>,
}

/// Keep or drop, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Whether the span is stored.
    pub keep: bool,
    /// How many spans it stands for; none: unknown.
    pub weight: Option<f64>,
    /// The threshold in force; none: unknown.
    pub threshold: Option<u64>,
    /// Short and stable.
    pub reason: &'static str,
}

/// Decides span by span.
#[derive(Clone, Debug, Default)]
pub struct Sampler;

impl Sampler {
    /// The decision; `trace_state` becomes the rewritten tracestate, or stays empty if it is as sent.
    #[must_use]
    pub fn decide(&self, _subject: &Subject<'_>, _trace_state: &mut Vec<u8>) -> Decision {
        Decision {
            keep: true,
            weight: None,
            threshold: None,
            reason: "",
        }
    }
}
