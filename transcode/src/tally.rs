//! Tally of one delivery: counts, and the warnings for its sender.
//!
//! Never: puts bytes of the input into a message.

use std::fmt::Write;

use crate::visit::{Rejection, Warning};

/// Longest message; senders and proxies truncate longer messages.
const MESSAGE_BYTES_MAX: usize = 4_000;

/// Number of occurrences of a reason, and the first span that it occurred in.
#[derive(Clone, Copy, Default)]
struct Occurrences {
    count: u32,
    first_span: Option<u32>,
}

impl Occurrences {
    fn add(&mut self, span: Option<u32>) {
        if self.count == 0 {
            self.first_span = span;
        }
        self.count = self.count.saturating_add(1);
    }
}

/// Spans of one project in one delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectTally {
    /// Dictionary id of the project.
    pub project: u32,
    /// Spans received.
    pub received: u32,
    /// Spans stored as rows.
    pub stored: u32,
    /// Spans dropped by the sampling policy.
    pub sampled_out: u32,
    /// Invalid spans.
    pub rejected: u32,
}

/// Result for one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// Stored as a row.
    Stored,
    /// Dropped by the sampling policy.
    SampledOut,
    /// Invalid.
    Rejected(Rejection),
}

/// Tally of one delivery.
#[derive(Clone)]
pub struct Tally {
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
    /// Spans stored under the receive time because the retention would delete them at once.
    pub late: u32,
    /// Size as rows, where every span repeats the attributes of its resource and scope.
    pub expanded_bytes: usize,
    /// The counts by project, in order of first appearance.
    pub projects: Vec<ProjectTally>,
    slots: Vec<Option<u32>>,
    in_span: bool,
    warnings: [Occurrences; Warning::ALL.len()],
    rejections: [Occurrences; Rejection::ALL.len()],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            received: 0,
            stored: 0,
            sampled_out: 0,
            rejected: 0,
            unresolved: 0,
            late: 0,
            expanded_bytes: 0,
            projects: Vec::new(),
            slots: Vec::new(),
            in_span: false,
            warnings: [Occurrences::default(); Warning::ALL.len()],
            rejections: [Occurrences::default(); Rejection::ALL.len()],
        }
    }
}

impl Tally {
    /// Begins a span; warnings until its end belong to it.
    #[inline]
    pub fn span_begin(&mut self) {
        self.received += 1;
        self.in_span = true;
    }

    /// Counts one occurrence of a warning.
    #[cold]
    pub fn warn(&mut self, warning: Warning) {
        let span = self.in_span.then(|| self.received.saturating_sub(1));
        if let Some(occurrences) = self.warnings.get_mut(warning as usize) {
            occurrences.add(span);
        }
    }

    /// Ends the current span.
    #[inline]
    pub fn span_end(&mut self, project: u32, outcome: SpanOutcome) {
        self.in_span = false;
        let slot = self.project_slot(project);
        // The slot always exists; the fallback avoids an index expression, which could panic.
        let mut unlisted = ProjectTally::default();
        let entry = self.projects.get_mut(slot).unwrap_or(&mut unlisted);
        entry.received += 1;
        match outcome {
            SpanOutcome::Stored => {
                entry.stored += 1;
                self.stored += 1;
            }
            SpanOutcome::SampledOut => {
                entry.sampled_out += 1;
                self.sampled_out += 1;
            }
            SpanOutcome::Rejected(reason) => {
                entry.rejected += 1;
                self.reject(reason);
            }
        }
    }

    #[cold]
    fn reject(&mut self, reason: Rejection) {
        self.rejected += 1;
        let span = self.received.checked_sub(1);
        if let Some(occurrences) = self.rejections.get_mut(reason as usize) {
            occurrences.add(span);
        }
    }

    /// Returns the index of a project's entry, looked up by number so that many projects cost no search.
    #[inline]
    fn project_slot(&mut self, project: u32) -> usize {
        let known = self.slots.get(project as usize).copied().flatten();
        known.map_or_else(|| self.add_project(project), |slot| slot as usize)
    }

    #[cold]
    fn add_project(&mut self, project: u32) -> usize {
        let (wanted, slot) = (project as usize, self.projects.len());
        self.slots.resize(self.slots.len().max(wanted + 1), None);
        if let Some(entry) = self.slots.get_mut(wanted) {
            *entry = u32::try_from(slot).ok();
        }
        self.projects.push(ProjectTally {
            project,
            ..ProjectTally::default()
        });
        slot
    }

    /// Returns the first warning that occurred, in the order of the list of warnings.
    #[must_use]
    pub fn first_warning(&self) -> Option<Warning> {
        Warning::ALL
            .iter()
            .zip(&self.warnings)
            .find(|(_, occurrences)| occurrences.count > 0)
            .map(|(warning, _)| *warning)
    }

    /// Returns warnings and rejections by their stable key, with their counts.
    #[must_use]
    pub fn reasons(&self) -> Vec<(&'static str, u32)> {
        let rejections = Rejection::ALL
            .iter()
            .zip(&self.rejections)
            .map(|(reason, occurrences)| (reason.key(), occurrences.count));
        let warnings = Warning::ALL
            .iter()
            .zip(&self.warnings)
            .map(|(warning, occurrences)| (warning.key(), occurrences.count));
        // Counted but not part of the message, because a late span is not a mistake of the sender.
        let late = std::iter::once(("late", self.late));
        rejections
            .chain(warnings)
            .chain(late)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Returns one sentence per reason; empty if there is nothing to report.
    #[must_use]
    pub fn message(&self) -> String {
        let rejections = Rejection::ALL
            .iter()
            .zip(&self.rejections)
            .map(|(reason, occurrences)| (reason.text(), occurrences, "rejected"));
        let warnings = Warning::ALL
            .iter()
            .zip(&self.warnings)
            .map(|(warning, occurrences)| (warning.text(), occurrences, "warning"));
        let reasons = rejections
            .chain(warnings)
            .filter(|(_, occurrences, _)| occurrences.count > 0);
        joined(reasons.map(|(text, occurrences, what)| sentence(what, text, occurrences)))
    }
}

fn sentence(what: &str, text: &str, occurrences: &Occurrences) -> String {
    let mut out = format!("{what} ({}x", occurrences.count);
    if let Some(span) = occurrences.first_span {
        let _ = write!(out, ", first at span {span}");
    }
    let _ = write!(out, "): {}", ascii(text));
    out
}

/// Converts a message to plain ASCII.
#[must_use]
pub fn ascii(text: &str) -> String {
    text.replace('…', "...")
}

fn joined(sentences: impl Iterator<Item = String>) -> String {
    let (mut out, mut left_out) = (String::new(), 0);
    for sentence in sentences {
        if out.len() + sentence.len() + 2 > MESSAGE_BYTES_MAX {
            // Goes on, because a shorter sentence may still fit.
            left_out += 1;
            continue;
        }
        let separator = if out.is_empty() { "" } else { ". " };
        let _ = write!(out, "{separator}{sentence}");
    }
    if left_out > 0 {
        let _ = write!(out, "; and {left_out} more reasons");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_ascii_and_below_4_kib() {
        let mut tally = Tally::default();
        for warning in Warning::ALL {
            tally.warn(*warning);
        }
        for reason in Rejection::ALL {
            tally.span_begin();
            tally.span_end(0, SpanOutcome::Rejected(*reason));
        }

        let message = tally.message();

        assert!(
            message.is_ascii() && message.len() < 4_096,
            "{} bytes",
            message.len()
        );
        assert!(message.starts_with("rejected (1x, first at span 0): span without a trace id"));
    }

    #[test]
    fn shortened_message_counts_the_omitted_reasons() {
        let message = joined((0..50).map(|_| "x".repeat(100)));

        assert!(message.len() < 4_096);
        assert!(
            message.ends_with("; and 11 more reasons"),
            "{}",
            message.len()
        );
    }

    #[test]
    fn warnings_name_the_first_affected_span() {
        let mut tally = Tally::default();
        tally.warn(Warning::GzipUndeclared);
        tally.span_begin();
        tally.span_end(0, SpanOutcome::Stored);
        tally.span_begin();
        tally.warn(Warning::EnumName);
        tally.warn(Warning::EnumName);

        assert_eq!(
            tally.message(),
            "warning (2x, first at span 1): enum sent by name; OTLP/JSON requires the number. \
             warning (1x): body is gzip but has no Content-Encoding: gzip"
        );
    }

    #[test]
    fn projects_are_counted_separately_in_order_of_appearance() {
        let mut tally = Tally::default();
        for (project, outcome) in [
            (7, SpanOutcome::Stored),
            (3, SpanOutcome::SampledOut),
            (7, SpanOutcome::Rejected(Rejection::SpanIdZero)),
        ] {
            tally.span_begin();
            tally.span_end(project, outcome);
        }

        let seven = ProjectTally {
            project: 7,
            received: 2,
            stored: 1,
            sampled_out: 0,
            rejected: 1,
        };
        let three = ProjectTally {
            project: 3,
            received: 1,
            stored: 0,
            sampled_out: 1,
            rejected: 0,
        };
        assert_eq!(tally.projects, [seven, three]);
    }
}
