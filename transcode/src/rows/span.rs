//! The end of a span: rejected, sampled out, or a row.

use super::owner::id_of_name;
use super::{Found, Open, ROW_BYTES, Rows};
use crate::clock::Stamp;
use crate::columns::map::MapColumn;
use crate::columns::text::RunColumn;
use crate::refusal::Refusal;
use crate::resolve::Best;
use crate::sample::{Decision, Subject};
use crate::tally::{Fate, Tally};
use crate::visit::{Span, Value, Warning};

/// `SPAN_KIND_…` run from 0 to 5.
const KIND_MAX: u8 = 5;
/// `STATUS_CODE_…` run from 0 to 2.
const STATUS_MAX: u8 = 2;

/// The span's own answers to whose it is, and whether it asks to be kept.
#[derive(Default)]
struct Resolved {
    project: Found,
    deployment: Found,
    priority: Option<f64>,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn open_span(&mut self) {
        let attributes = &mut self.columns.attributes;
        self.open = Open {
            attributes: attributes.mark(),
            ..Open::default()
        };
        attributes.open();
        self.tally.span_begin();
    }

    #[inline]
    pub(super) fn close_span(&mut self, span: &Span<'_>) {
        let resolved = self.resolve();
        let fate = match (span.trace_id, span.span_id) {
            (Ok(trace_id), Ok(span_id)) => self.keep_or_drop(span, trace_id, span_id, &resolved),
            (Err(reason), _) | (_, Err(reason)) => Fate::Rejected(reason),
        };
        if fate != Fate::Stored {
            self.roll_back();
        }
        self.tally.span_end(resolved.project.id, fate);
        self.charge();
    }

    fn roll_back(&mut self) {
        self.columns.attributes.truncate(self.open.attributes);
        if let Some(mark) = self.open.events {
            self.columns.events.truncate(mark);
        }
        if let Some(mark) = self.open.links {
            self.columns.links.truncate(mark);
        }
    }

    /// A resource is told once and stored with every span: that may not multiply without bound.
    #[inline]
    fn charge(&mut self) {
        let row_bytes = ROW_BYTES
            + self.open.expanded_bytes
            + self.resource.expanded_bytes
            + self.scope.expanded_bytes;
        self.expanded_bytes = self.expanded_bytes.saturating_add(row_bytes);
        let max = self.policy.limits.expanded_bytes_max;
        if self.expanded_bytes > max && self.refusal.is_none() {
            let reason = format!(
                "spans with their resources' attributes take more than {max} bytes; send smaller batches"
            );
            self.refusal = Some(Refusal::too_large("resource_spans", reason));
        }
    }

    #[inline]
    fn resolve(&mut self) -> Resolved {
        let (project, deployment) = (self.resource.project, self.resource.deployment);
        let mut resolved = Resolved {
            project,
            deployment,
            priority: None,
        };
        if !self.columns.attributes.noted.is_empty() {
            self.resolve_from_span(&mut resolved);
        }
        resolved
    }

    fn resolve_from_span(&mut self, resolved: &mut Resolved) {
        let (attributes, roles) = (&self.columns.attributes, &self.policy.resolver.span);
        let (mut project, mut deployment) = (Best::default(), Best::default());
        for &(role, position) in &attributes.noted {
            let (role, value) = (roles.get(role), attributes.value_at(position));
            project.offer(role.project, position, value);
            deployment.offer(role.deployment, position, value);
            if role.priority {
                resolved.priority = value.parse().ok();
            }
        }
        better(
            &mut resolved.project,
            project,
            attributes,
            &mut self.columns.projects,
            &mut self.tally,
        );
        better(
            &mut resolved.deployment,
            deployment,
            attributes,
            &mut self.columns.deployments,
            &mut self.tally,
        );
    }

    #[inline]
    fn keep_or_drop(
        &mut self,
        span: &Span<'_>,
        trace_id: [u8; 16],
        span_id: [u8; 8],
        resolved: &Resolved,
    ) -> Fate {
        let decision = self.decide(span, trace_id, resolved);
        if !decision.keep {
            return Fate::SampledOut;
        }
        self.write(span, trace_id, span_id, resolved, &decision);
        Fate::Stored
    }

    fn decide(&mut self, span: &Span<'_>, trace_id: [u8; 16], resolved: &Resolved) -> Decision<'a> {
        let project = if resolved.project.id == self.resource.project.id {
            &self.names.project
        } else {
            self.columns.projects.dictionary.text(resolved.project.id)
        };
        let subject = Subject {
            trace_id,
            trace_state: span.trace_state,
            project,
            environment: &self.names.environment,
            service: &self.names.service,
            drain: self.drain,
            priority: resolved.priority,
        };
        self.trace_state.clear();
        self.policy.sampler.decide(&subject, &mut self.trace_state)
    }

    #[inline]
    fn write(
        &mut self,
        span: &Span<'_>,
        trace_id: [u8; 16],
        span_id: [u8; 8],
        resolved: &Resolved,
        decision: &Decision<'_>,
    ) {
        let stamp = self.policy.window.stamp(
            span.start_unix_nano,
            span.end_unix_nano,
            self.received_at_ns,
        );
        if stamp.start_replaced.is_some() || stamp.end_ignored.is_some() {
            self.note_times(&stamp);
        }
        let kind = self.enum_number(span.kind, KIND_MAX, b"trace_drain.kind");
        let status = self.enum_number(span.status_code, STATUS_MAX, b"trace_drain.status_code");
        self.write_counts(span);
        self.write_decision(decision);
        self.write_texts(span, decision.rewritten);
        let columns = &mut *self.columns;
        columns.attributes.close();
        columns.events.ends.push(columns.events.times.len() as u64);
        columns.links.ends.push(columns.links.span_ids.len() as u64);
        columns.trace_ids.push(trace_id);
        columns.span_ids.push(span_id);
        columns
            .parent_span_ids
            .push(span.parent_span_id.unwrap_or_default());
        columns.kinds.push(kind);
        columns.status_codes.push(status);
        columns.durations.push(stamp.duration);
        columns.flags.push(span.flags);
        columns.projects.runs.push(resolved.project.id, 1);
        columns.deployments.runs.push(resolved.deployment.id, 1);
        self.tally.unresolved += u32::from(resolved.project.rank.is_none());
        columns.timestamps.push(stamp.timestamp);
    }

    /// Texts in the wire's order of columns.
    #[inline]
    fn write_texts(&mut self, span: &Span<'_>, is_rewritten: bool) {
        let bytes_max = self.policy.limits.text_bytes_max;
        let (columns, tally) = (&mut *self.columns, &mut self.tally);
        let trace_state = if is_rewritten {
            &self.trace_state
        } else {
            span.trace_state
        };
        columns.trace_states.push(trace_state, bytes_max, tally);
        columns.names.push(span.name, bytes_max, tally);
        columns
            .status_messages
            .push(span.status_message, bytes_max, tally);
        self.open.expanded_bytes += trace_state.len() + span.name.len() + span.status_message.len();
    }

    #[inline]
    fn write_counts(&mut self, span: &Span<'_>) {
        let (columns, open) = (&mut *self.columns, &self.open);
        let row = columns.rows();
        let dropped = [
            (
                &mut columns.dropped_attributes,
                span.dropped_attributes_count,
                open.dropped_attributes,
            ),
            (
                &mut columns.dropped_events,
                span.dropped_events_count,
                open.dropped_events,
            ),
            (
                &mut columns.dropped_links,
                span.dropped_links_count,
                open.dropped_links,
            ),
        ];
        for (column, by_sender, by_us) in dropped {
            let count = by_sender.saturating_add(by_us);
            if count > 0 {
                column.push(row, count);
            }
        }
    }

    #[inline]
    fn write_decision(&mut self, decision: &Decision<'_>) {
        let columns = &mut *self.columns;
        let row = columns.rows();
        if let Some(weight) = decision.weight {
            columns.weights.push(row, weight);
        }
        if let Some(threshold) = decision.threshold {
            columns.thresholds.push(row, threshold);
        }
        columns.reasons.push_text(decision.reason);
    }

    /// Times that are not stored as sent survive as attributes.
    #[cold]
    fn note_times(&mut self, stamp: &Stamp) {
        if let Some(start) = stamp.start_replaced {
            self.note(b"trace_drain.start_time_unix_nano", start);
            if stamp.late {
                self.tally.late += 1;
            } else {
                self.tally.warn(Warning::StartImplausible);
            }
        }
        if let Some(end) = stamp.end_ignored {
            self.note(b"trace_drain.end_time_unix_nano", end);
            self.tally.warn(Warning::EndImplausible);
        }
    }

    /// The enum's number if it is one of those we have names for; else 0, and the number as attribute.
    #[inline]
    fn enum_number(&mut self, number: i32, max: u8, key: &[u8]) -> u8 {
        match u8::try_from(number) {
            Ok(known) if known <= max => known,
            _ => {
                self.note(key, number);
                0
            }
        }
    }

    /// Adds an attribute of our own, also past the limit.
    #[cold]
    fn note(&mut self, key: &[u8], number: impl itoa::Integer) {
        let mut buffer = itoa::Buffer::new();
        let value = buffer.format(number).as_bytes();
        let bytes_max = self.policy.limits.text_bytes_max;
        self.columns.attributes.put(
            key,
            Value::Text(value),
            &self.policy.resolver.span,
            bytes_max,
            &mut self.tally,
        );
    }
}

/// Takes the span's attribute if it ranks before the resource's.
fn better(
    found: &mut Found,
    best: Best,
    attributes: &MapColumn,
    column: &mut RunColumn,
    tally: &mut Tally,
) {
    if !best.beats(found.rank) {
        return;
    }
    if let Some((rank, position)) = best.0 {
        *found = Found {
            rank: Some(rank),
            id: id_of_name(attributes.value_at(position), column, tally),
        };
    }
}
