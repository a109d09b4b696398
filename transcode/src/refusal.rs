//! Every way a whole delivery is turned away. Texts are ours: never a byte of the input.

use std::borrow::Cow;
use std::fmt;

/// Which verdict the sender gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not one well-formed document of the declared type: 400.
    Malformed,
    /// More than a limit allows: 413.
    TooLarge,
}

/// Why a delivery is refused whole. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The verdict, and so the status.
    pub verdict: Verdict,
    /// The field at fault, as OTLP spells its path (`resource_spans.scope_spans.spans.trace_id`), or `body`.
    pub field: &'static str,
    /// What was found; what was expected; a hint if the mistake is a known one.
    pub reason: Cow<'static, str>,
}

impl Refusal {
    /// The body is not what it says it is.
    pub fn malformed(field: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict: Verdict::Malformed,
            field,
            reason: reason.into(),
        }
    }

    /// The body asks for more than a limit allows.
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
