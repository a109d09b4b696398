//! Writer of one span: rejects it, drops it by sampling, or writes it as a row.

use super::owner::id_of_name;
use super::{CurrentSpan, ROW_BYTES, ResolvedName, Rows};
use crate::clock::Stamp;
use crate::columns::map::MapColumn;
use crate::columns::text::RunColumn;
use crate::refusal::Refusal;
use crate::resolve::Best;
use crate::sample::{Decision, Subject};
use crate::tally::{SpanOutcome, Tally};
use crate::visit::{Span, Value, Warning};

/// Highest number of `SPAN_KIND_…`.
const KIND_MAX: u8 = 5;
/// Highest number of `STATUS_CODE_…`.
const STATUS_MAX: u8 = 2;

/// Project and deployment of a span, and its `sampling.priority`.
#[derive(Default)]
struct Resolved {
    project: ResolvedName,
    deployment: ResolvedName,
    priority: Option<f64>,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn open_span(&mut self) {
        let attributes = &mut self.columns.attributes;
        self.current_span = CurrentSpan {
            attributes: attributes.mark(),
            ..CurrentSpan::default()
        };
        attributes.open();
        self.tally.span_begin();
    }

    #[inline]
    pub(super) fn close_span(&mut self, span: &Span<'_>) {
        // Resolved before the outcome, because dropped and rejected spans are counted by project too.
        let resolved = self.resolve();
        let outcome = match (span.trace_id, span.span_id) {
            (Ok(trace_id), Ok(span_id)) => self.keep_or_drop(span, trace_id, span_id, &resolved),
            (Err(reason), _) | (_, Err(reason)) => SpanOutcome::Rejected(reason),
        };
        if outcome != SpanOutcome::Stored {
            self.roll_back();
        }
        self.tally.span_end(resolved.project.id, outcome);
        self.count_expanded_bytes();
    }

    fn roll_back(&mut self) {
        self.columns
            .attributes
            .truncate(self.current_span.attributes);
        if let Some(mark) = self.current_span.events {
            self.columns.events.truncate(mark);
        }
        if let Some(mark) = self.current_span.links {
            self.columns.links.truncate(mark);
        }
    }

    /// Counts the size of the row. A resource is sent once and stored with every span, so a small body can become many
    /// times larger as rows; this expanded size is limited.
    #[inline]
    fn count_expanded_bytes(&mut self) {
        let row_bytes = ROW_BYTES
            + self.current_span.expanded_bytes
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
        // Nearly all spans take their names from the resource.
        if !self.columns.attributes.role_entries.is_empty() {
            self.resolve_from_span(&mut resolved);
        }
        resolved
    }

    fn resolve_from_span(&mut self, resolved: &mut Resolved) {
        let (attributes, roles) = (&self.columns.attributes, &self.policy.resolver.span);
        let (mut project, mut deployment) = (Best::default(), Best::default());
        for &(role, position) in &attributes.role_entries {
            let (role, value) = (roles.get(role), attributes.value_at(position));
            project.offer(role.project, position, value);
            deployment.offer(role.deployment, position, value);
            if role.priority {
                resolved.priority = value.parse().ok();
            }
        }
        prefer_span_attribute(
            &mut resolved.project,
            project,
            attributes,
            &mut self.columns.projects,
            &mut self.tally,
        );
        prefer_span_attribute(
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
    ) -> SpanOutcome {
        let decision = self.decide(span, trace_id, resolved);
        if !decision.keep {
            return SpanOutcome::SampledOut;
        }
        self.write(span, trace_id, span_id, resolved, &decision);
        SpanOutcome::Stored
    }

    fn decide(&mut self, span: &Span<'_>, trace_id: [u8; 16], resolved: &Resolved) -> Decision<'a> {
        // Nearly every span has the project of its resource, whose name is already looked up.
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
        // These attributes, and those of unknown enums, are added while the map of the span is still open.
        if stamp.start_replaced.is_some() || stamp.end_ignored.is_some() {
            self.keep_replaced_times(&stamp);
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
        // This column is written last, because its length is the number of rows.
        columns.timestamps.push(stamp.timestamp);
    }

    /// Writes the text columns.
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
        self.current_span.expanded_bytes +=
            trace_state.len() + span.name.len() + span.status_message.len();
    }

    #[inline]
    fn write_counts(&mut self, span: &Span<'_>) {
        let (columns, current_span) = (&mut *self.columns, &self.current_span);
        let row = columns.rows();
        let dropped = [
            (
                &mut columns.dropped_attributes,
                span.dropped_attributes_count,
                current_span.dropped_attributes,
            ),
            (
                &mut columns.dropped_events,
                span.dropped_events_count,
                current_span.dropped_events,
            ),
            (
                &mut columns.dropped_links,
                span.dropped_links_count,
                current_span.dropped_links,
            ),
        ];
        for (column, by_sender, by_limits) in dropped {
            let count = by_sender.saturating_add(by_limits);
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

    /// Stores the original of each replaced time as an attribute.
    #[cold]
    fn keep_replaced_times(&mut self, stamp: &Stamp) {
        if let Some(start) = stamp.start_replaced {
            self.add_attribute(b"trace_drain.start_time_unix_nano", start);
            if stamp.late {
                // Old spans are normal after an outage, so they are counted but not warned about.
                self.tally.late += 1;
            } else {
                self.tally.warn(Warning::StartImplausible);
            }
        }
        if let Some(end) = stamp.end_ignored {
            self.add_attribute(b"trace_drain.end_time_unix_nano", end);
            self.tally.warn(Warning::EndImplausible);
        }
    }

    /// Returns the number if it belongs to the enum. Otherwise stores the number as an attribute and returns 0.
    #[inline]
    fn enum_number(&mut self, number: i32, max: u8, key: &[u8]) -> u8 {
        match u8::try_from(number) {
            Ok(known) if known <= max => known,
            _ => {
                self.add_attribute(key, number);
                0
            }
        }
    }

    /// Adds an attribute that the receiver itself sets, even above the attribute limit.
    #[cold]
    fn add_attribute(&mut self, key: &[u8], number: impl itoa::Integer) {
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

/// Replaces the name from the resource if an attribute of the span has a higher rank.
fn prefer_span_attribute(
    resolved_name: &mut ResolvedName,
    best: Best,
    attributes: &MapColumn,
    column: &mut RunColumn,
    tally: &mut Tally,
) {
    if !best.beats(resolved_name.rank) {
        return;
    }
    if let Some((rank, position)) = best.0 {
        *resolved_name = ResolvedName {
            rank: Some(rank),
            id: id_of_name(attributes.value_at(position), column, tally),
        };
    }
}
