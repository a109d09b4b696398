//! What happened to one delivery: counts, and what its sender is told.
//!
//! Never: a byte of the input in a message.

use std::fmt::Write;

use crate::visit::{Rejection, Warning};

/// A message stays under this; senders and proxies cut long ones.
const MESSAGE_BYTES_MAX: usize = 4_000;

/// How often something was seen, and in which span first.
#[derive(Clone, Copy, Default)]
struct Seen {
    count: u32,
    first_span: Option<u32>,
}

impl Seen {
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
    /// The project's number in its column's dictionary.
    pub project: u32,
    /// All spans.
    pub received: u32,
    /// Spans that became rows.
    pub stored: u32,
    /// Spans the policy dropped.
    pub sampled_out: u32,
    /// Spans that are not valid.
    pub rejected: u32,
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It became a row.
    Stored,
    /// The policy dropped it.
    SampledOut,
    /// It is not valid.
    Rejected(Rejection),
}

/// What happened to one delivery.
#[derive(Clone)]
pub struct Tally {
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
    /// Spans stored under the receive time because retention would delete them at once.
    pub late: u32,
    /// Bytes as rows, where every span repeats the attributes of its resource and scope.
    pub expanded_bytes: usize,
    /// The same by project, in order of first appearance.
    pub projects: Vec<ProjectTally>,
    slots: Vec<Option<u32>>,
    in_span: bool,
    warnings: [Seen; Warning::ALL.len()],
    rejections: [Seen; Rejection::ALL.len()],
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
            warnings: [Seen::default(); Warning::ALL.len()],
            rejections: [Seen::default(); Rejection::ALL.len()],
        }
    }
}

impl Tally {
    /// A span begins; warnings until its end are its own.
    #[inline]
    pub fn span_begin(&mut self) {
        self.received += 1;
        self.in_span = true;
    }

    /// Notes one occurrence.
    #[cold]
    pub fn warn(&mut self, warning: Warning) {
        let span = self.in_span.then(|| self.received.saturating_sub(1));
        if let Some(seen) = self.warnings.get_mut(warning as usize) {
            seen.add(span);
        }
    }

    /// The span begun last is done.
    #[inline]
    pub fn span_end(&mut self, project: u32, fate: Fate) {
        self.in_span = false;
        let slot = self.project_slot(project);
        let mut unlisted = ProjectTally::default();
        let entry = self.projects.get_mut(slot).unwrap_or(&mut unlisted);
        entry.received += 1;
        match fate {
            Fate::Stored => {
                entry.stored += 1;
                self.stored += 1;
            }
            Fate::SampledOut => {
                entry.sampled_out += 1;
                self.sampled_out += 1;
            }
            Fate::Rejected(reason) => {
                entry.rejected += 1;
                self.reject(reason);
            }
        }
    }

    #[cold]
    fn reject(&mut self, reason: Rejection) {
        self.rejected += 1;
        let span = self.received.checked_sub(1);
        if let Some(seen) = self.rejections.get_mut(reason as usize) {
            seen.add(span);
        }
    }

    /// Where a project's entry lies: looked up by number, so that many projects cost no search.
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

    /// The first warning that was given, by the list's order.
    #[must_use]
    pub fn first_warning(&self) -> Option<Warning> {
        Warning::ALL
            .iter()
            .zip(&self.warnings)
            .find(|(_, seen)| seen.count > 0)
            .map(|(warning, _)| *warning)
    }

    /// Warnings and rejections by their stable key, with their counts.
    #[must_use]
    pub fn reasons(&self) -> Vec<(&'static str, u32)> {
        let rejections = Rejection::ALL
            .iter()
            .zip(&self.rejections)
            .map(|(reason, seen)| (reason.key(), seen.count));
        let warnings = Warning::ALL
            .iter()
            .zip(&self.warnings)
            .map(|(warning, seen)| (warning.key(), seen.count));
        let late = std::iter::once(("late", self.late));
        rejections
            .chain(warnings)
            .chain(late)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// One sentence for each reason; empty if there is nothing to say.
    #[must_use]
    pub fn message(&self) -> String {
        let rejections = Rejection::ALL
            .iter()
            .zip(&self.rejections)
            .map(|(reason, seen)| (reason.text(), seen, "rejected"));
        let warnings = Warning::ALL
            .iter()
            .zip(&self.warnings)
            .map(|(warning, seen)| (warning.text(), seen, "warning"));
        let said = rejections
            .chain(warnings)
            .filter(|(_, seen, _)| seen.count > 0);
        joined(said.map(|(text, seen, what)| sentence(what, text, seen)))
    }
}

fn sentence(what: &str, text: &str, seen: &Seen) -> String {
    let mut out = format!("{what} ({}x", seen.count);
    if let Some(span) = seen.first_span {
        let _ = write!(out, ", first at span {span}");
    }
    let _ = write!(out, "): {}", ascii(text));
    out
}

/// One of our texts for an answer that must be plain ASCII.
#[must_use]
pub fn ascii(text: &str) -> String {
    text.replace('…', "...")
}

fn joined(sentences: impl Iterator<Item = String>) -> String {
    let (mut out, mut left_out) = (String::new(), 0);
    for sentence in sentences {
        if out.len() + sentence.len() + 2 > MESSAGE_BYTES_MAX {
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
    fn a_message_is_ascii_and_below_4_kib_whatever_is_wrong() {
        let mut tally = Tally::default();
        for warning in Warning::ALL {
            tally.warn(*warning);
        }
        for reason in Rejection::ALL {
            tally.span_begin();
            tally.span_end(0, Fate::Rejected(*reason));
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
    fn a_message_that_would_grow_too_long_says_how_much_is_left_out() {
        let message = joined((0..50).map(|_| "x".repeat(100)));

        assert!(message.len() < 4_096);
        assert!(
            message.ends_with("; and 11 more reasons"),
            "{}",
            message.len()
        );
    }

    #[test]
    fn warnings_know_the_first_span_they_were_given_in() {
        let mut tally = Tally::default();
        tally.warn(Warning::GzipUndeclared);
        tally.span_begin();
        tally.span_end(0, Fate::Stored);
        tally.span_begin();
        tally.warn(Warning::EnumName);
        tally.warn(Warning::EnumName);

        assert_eq!(
            tally.message(),
            "warning (2x, first at span 1): enum sent by name; OTLP/JSON wants the number. \
             warning (1x): body is gzip but Content-Encoding does not say so"
        );
    }

    #[test]
    fn projects_are_counted_apart_in_order_of_appearance() {
        let mut tally = Tally::default();
        for (project, fate) in [
            (7, Fate::Stored),
            (3, Fate::SampledOut),
            (7, Fate::Rejected(Rejection::SpanIdZero)),
        ] {
            tally.span_begin();
            tally.span_end(project, fate);
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
