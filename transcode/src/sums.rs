//! Sums of span outcomes over a group. The receiver adds them to its metrics once the record is durable.

use crate::group::Delivery;
use crate::outcome::{Outcome, Verdict};

/// Outcomes of the spans that one drain sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Spans received.
    pub received: u64,
    /// Spans stored as rows.
    pub stored: u64,
    /// Spans dropped by the sampling policy.
    pub sampled_out: u64,
    /// Invalid spans.
    pub rejected: u64,
    /// Stored spans without a project.
    pub unresolved: u64,
}

impl Spans {
    fn add(&mut self, outcome: &Outcome) {
        self.received += u64::from(outcome.received);
        self.stored += u64::from(outcome.stored);
        self.sampled_out += u64::from(outcome.sampled_out);
        self.rejected += u64::from(outcome.rejected);
        self.unresolved += u64::from(outcome.unresolved);
    }
}

/// The sums of a group, over the deliveries that were accepted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums<'a> {
    /// One entry per drain, in order of first appearance.
    pub spans: Vec<(&'a str, Spans)>,
    /// Warnings and rejections by their stable key.
    pub reasons: Vec<(&'static str, u32)>,
}

/// Returns the sums of a group's outcomes.
#[must_use]
pub fn of<'a>(deliveries: &[Delivery<'a>], outcomes: &[Outcome]) -> Sums<'a> {
    let mut sums = Sums::default();
    for (delivery, outcome) in deliveries.iter().zip(outcomes) {
        if outcome.verdict == Verdict::Accepted {
            add_to(&mut sums.spans, delivery.drain, |spans: &mut Spans| {
                spans.add(outcome);
            });
            for (reason, count) in &outcome.reasons {
                add_to(&mut sums.reasons, reason, |sum: &mut u32| *sum += count);
            }
        }
    }
    sums
}

/// Updates the value of a key. Searches linearly from the end: there are few keys, and most calls repeat the last key.
fn add_to<'k, T: Default>(sums: &mut Vec<(&'k str, T)>, key: &'k str, add: impl FnOnce(&mut T)) {
    if let Some((_, value)) = sums.iter_mut().rfind(|(known, _)| *known == key) {
        add(value);
    } else {
        let mut value = T::default();
        add(&mut value);
        sums.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Kind;

    fn delivery(drain: &str) -> Delivery<'_> {
        Delivery {
            drain,
            body: b"",
            kind: Kind::Protobuf,
            encodings: Vec::new(),
            received_at_ns: 0,
            strict: false,
            body_bytes_max: 1,
        }
    }

    fn outcome(verdict: Verdict, stored: u32, reasons: Vec<(&'static str, u32)>) -> Outcome {
        Outcome {
            verdict,
            received: stored + 3,
            stored,
            sampled_out: 2,
            rejected: 1,
            unresolved: stored,
            reasons,
            ..Outcome::default()
        }
    }

    #[test]
    fn only_accepted_deliveries_are_summed_by_drain() {
        let deliveries = [delivery("a"), delivery("b"), delivery("a"), delivery("a")];
        let outcomes = [
            outcome(Verdict::Accepted, 10, vec![("one", 1)]),
            outcome(Verdict::Accepted, 20, vec![]),
            outcome(Verdict::Accepted, 30, vec![("two", 5), ("one", 2)]),
            outcome(Verdict::Malformed, 40, vec![("one", 9)]),
        ];

        let sums = of(&deliveries, &outcomes);

        let spans = |received, stored, deliveries| Spans {
            received,
            stored,
            sampled_out: 2 * deliveries,
            rejected: deliveries,
            unresolved: stored,
        };
        assert_eq!(
            sums.spans,
            [("a", spans(46, 40, 2)), ("b", spans(23, 20, 1))]
        );
        assert_eq!(sums.reasons, [("one", 3), ("two", 5)]);
    }
}
