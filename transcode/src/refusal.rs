//! Refusals of whole deliveries. Messages are fixed strings and never contain bytes of the input.

use std::borrow::Cow;
use std::fmt;

/// Verdict for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The body is not one well-formed document of the declared type: 400.
    Malformed,
    /// The body exceeds a limit: 413.
    TooLarge,
}

/// The reason to refuse a whole delivery. No part of the delivery is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The verdict, which decides the HTTP status.
    pub verdict: Verdict,
    /// The field that caused it, as an OTLP path (`resource_spans.scope_spans.spans.trace_id`), or `body`.
    pub field: &'static str,
    /// The problem; the expected input; a hint for known mistakes.
    pub reason: Cow<'static, str>,
}

impl Refusal {
    /// Refuses a body that is not what its content type declares.
    pub fn malformed(field: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict: Verdict::Malformed,
            field,
            reason: reason.into(),
        }
    }

    /// Refuses a body that exceeds a limit.
    pub fn too_large(field: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict: Verdict::TooLarge,
            field,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Refusal {}
