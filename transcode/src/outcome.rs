//! What became of one delivery, and what its sender is told.

use crate::refusal::{self, Refusal};
use crate::tally::Tally;

/// How a delivery ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Everything valid in it is stored or was sampled out.
    #[default]
    Accepted,
    /// Not what it says it is: 400.
    Malformed,
    /// More than a limit allows: 413.
    TooLarge,
    /// We panicked on it: 503.
    Crashed,
    /// Not looked at, because its group is full: it belongs to the next one.
    Postponed,
}

impl Verdict {
    /// The verdict's name.
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

/// What became of one delivery.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// Spans begun.
    pub received: u32,
    /// Spans that became rows.
    pub stored: u32,
    /// Spans the policy dropped.
    pub sampled_out: u32,
    /// Spans that are not valid.
    pub rejected: u32,
    /// Stored spans without a project.
    pub unresolved: u32,
    /// For `partial_success`, or why it is refused; empty: nothing to say.
    pub message: String,
    /// The field at fault when refused.
    pub field: &'static str,
    /// Warnings and rejections by their stable key.
    pub reasons: Vec<(&'static str, u32)>,
}

impl Outcome {
    /// What a decoder's result means for the sender.
    #[must_use]
    pub fn of(told: Result<&Tally, &Refusal>, strict: bool) -> Self {
        match told {
            Err(refusal) => Self::refused(refusal),
            Ok(tally) if tally.received > 0 && tally.rejected == tally.received => {
                Self::all_rejected(tally)
            }
            Ok(tally) if strict && tally.first_warning().is_some() => Self::too_lax(tally),
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

    fn too_lax(tally: &Tally) -> Self {
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

    /// Accepted in full, and nothing to tell its sender.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.verdict, Verdict::Accepted) && self.rejected == 0 && self.message.is_empty()
    }

    /// It was not looked at.
    #[must_use]
    pub fn postponed() -> Self {
        Self {
            verdict: Verdict::Postponed,
            ..Self::default()
        }
    }

    /// We panicked on it.
    #[must_use]
    pub fn crashed() -> Self {
        let message = "the receiver failed on this body; it is kept aside for a human".to_owned();
        Self {
            verdict: Verdict::Crashed,
            message,
            field: "body",
            ..Self::default()
        }
    }
}
