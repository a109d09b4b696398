//! Outcome of one delivery, and the message for its sender.

use crate::refusal::{self, Refusal};
use crate::tally::Tally;

/// Verdict on a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Every valid span in it is stored or was sampled out.
    #[default]
    Accepted,
    /// The body does not match its content type: 400.
    Malformed,
    /// The delivery exceeds a limit: 413.
    TooLarge,
    /// The decoder panicked on it: 503.
    Crashed,
    /// Not decoded yet, because its group is full; the next group decodes it.
    Postponed,
}

impl Verdict {
    /// Returns the verdict's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Crashed => "crashed",
            Self::Postponed => "postponed",
        }
    }
}

/// Outcome of one delivery.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Spans received.
    pub received: u32,
    /// Spans stored as rows.
    pub stored: u32,
    /// Spans dropped by the sampling policy.
    pub sampled_out: u32,
    /// Invalid spans.
    pub rejected: u32,
    /// Stored spans without a project.
    pub unresolved: u32,
    /// Text for `partial_success`, or the reason of a refusal; empty if there is nothing to report.
    pub message: String,
    /// The field that caused a refusal.
    pub field: &'static str,
    /// Warnings and rejections by their stable key.
    pub reasons: Vec<(&'static str, u32)>,
}

impl Outcome {
    /// Converts a decoder's result to an outcome.
    #[must_use]
    pub fn of(result: Result<&Tally, &Refusal>, strict: bool) -> Self {
        match result {
            Err(refusal) => Self::refused(refusal),
            Ok(tally) if tally.received > 0 && tally.rejected == tally.received => {
                Self::all_rejected(tally)
            }
            Ok(tally) if strict && tally.first_warning().is_some() => Self::strict_refusal(tally),
            Ok(tally) => Self::accepted(tally),
        }
    }

    fn accepted(tally: &Tally) -> Self {
        Self {
            verdict: Verdict::Accepted,
            received: tally.received,
            stored: tally.stored,
            sampled_out: tally.sampled_out,
            rejected: tally.rejected,
            unresolved: tally.unresolved,
            message: tally.message(),
            field: "",
            reasons: tally.reasons(),
        }
    }

    fn all_rejected(tally: &Tally) -> Self {
        Self {
            verdict: Verdict::Malformed,
            message: format!("no valid span in the body: {}", tally.message()),
            field: "resource_spans.scope_spans.spans",
            ..Self::accepted(tally)
        }
    }

    fn strict_refusal(tally: &Tally) -> Self {
        let text = tally
            .first_warning()
            .map_or("", crate::visit::Warning::text);
        Self {
            verdict: Verdict::Malformed,
            message: format!("strict drain: {}", crate::tally::ascii(text)),
            field: "body",
            reasons: tally.reasons(),
            ..Self::default()
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let verdict = match refusal.verdict {
            refusal::Verdict::Malformed => Verdict::Malformed,
            refusal::Verdict::TooLarge => Verdict::TooLarge,
        };
        Self {
            verdict,
            message: crate::tally::ascii(&refusal.reason),
            field: refusal.field,
            ..Self::default()
        }
    }

    /// Returns whether the delivery was accepted in full and its sender needs no message.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.verdict, Verdict::Accepted) && self.rejected == 0 && self.message.is_empty()
    }

    /// Outcome of a delivery that was not decoded.
    #[must_use]
    pub fn postponed() -> Self {
        Self {
            verdict: Verdict::Postponed,
            ..Self::default()
        }
    }

    /// Outcome of a delivery whose decoder panicked.
    #[must_use]
    pub fn crashed() -> Self {
        let message =
            "the receiver failed to decode this body; it is kept in quarantine for inspection"
                .to_owned();
        Self {
            verdict: Verdict::Crashed,
            message,
            field: "body",
            ..Self::default()
        }
    }
}
