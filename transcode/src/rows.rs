//! Visitor that turns the calls of a decoder into rows.
//!
//! Attributes, events and links of a span are written to their columns immediately, but only the end of the span
//! decides whether it is valid and kept. If it is not, the columns are truncated to their length at the beginning of
//! the span.

mod owner;
mod span;

use crate::columns::map::MapMark;
use crate::columns::nested::{EventsMark, LinksMark};
use crate::columns::{self, Columns};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::resolve::Best;
use crate::tally::Tally;
use crate::text::Number;
use crate::visit::{Owner, Span, Value, Visitor, Warning};

/// Estimated size of a row without its strings, for [`crate::limits::Limits::expanded_bytes_max`].
const ROW_BYTES: usize = 256;
/// Estimated size of an attribute without its strings.
const ATTRIBUTE_BYTES: usize = 8;

/// A resolved project or deployment: its rank in the list and its number in the column's dictionary.
#[derive(Clone, Copy, Default)]
struct ResolvedName {
    rank: Option<u8>,
    id: u32,
}

/// The current resource.
#[derive(Default)]
struct Resource {
    first_row: usize,
    mark: Option<(MapMark, (usize, u32))>,
    expanded_bytes: usize,
    project: ResolvedName,
    deployment: ResolvedName,
    service: Option<usize>,
    environment: Best,
}

/// Values of the resource that sampling rules compare, looked up once per resource.
#[derive(Default)]
struct Names {
    project: String,
    environment: String,
    service: String,
}

/// The current scope.
#[derive(Default)]
struct Scope {
    first_row: usize,
    mark: Option<(MapMark, (usize, u32))>,
    expanded_bytes: usize,
    name: u32,
    version: u32,
}

/// The current span: how much was dropped because of limits, and the columns' ends at its beginning.
#[derive(Default)]
struct CurrentSpan {
    dropped_attributes: u32,
    dropped_events: u32,
    dropped_links: u32,
    event_is_dropped: bool,
    link_is_dropped: bool,
    expanded_bytes: usize,
    attributes: MapMark,
    /// Set only for a span with events.
    events: Option<EventsMark>,
    /// Set only for a span with links.
    links: Option<LinksMark>,
    link_attributes: MapMark,
}

/// Writes the spans of one delivery into the columns.
pub struct Rows<'a> {
    policy: &'a Policy,
    columns: &'a mut Columns,
    drain: &'a str,
    received_at_ns: i64,
    tally: Tally,
    refusal: Option<Refusal>,
    has_content: bool,
    nodes: u32,
    resources: u32,
    scopes: u32,
    expanded_bytes: usize,
    start_mark: columns::Mark,
    first_row: usize,
    unpacking_warning: Option<Warning>,
    resource: Resource,
    names: Names,
    scope: Scope,
    current_span: CurrentSpan,
    trace_state: Vec<u8>,
}

impl<'a> Rows<'a> {
    /// Prepares for a delivery. `warning` is the warning from decompression.
    pub fn new(
        policy: &'a Policy,
        columns: &'a mut Columns,
        drain: &'a str,
        received_at_ns: i64,
        warning: Option<Warning>,
    ) -> Self {
        let (start_mark, first_row) = (columns.mark(), columns.rows());
        let mut rows = Self {
            policy,
            columns,
            drain,
            received_at_ns,
            start_mark,
            first_row,
            unpacking_warning: warning,
            tally: Tally::default(),
            refusal: None,
            has_content: false,
            nodes: 0,
            resources: 0,
            scopes: 0,
            expanded_bytes: 0,
            resource: Resource::default(),
            names: Names::default(),
            scope: Scope::default(),
            current_span: CurrentSpan::default(),
            trace_state: Vec::new(),
        };
        rows.begin();
        rows
    }

    /// Resets the state to the beginning of the delivery. Also called when the decoder restarts.
    fn begin(&mut self) {
        self.columns.truncate(self.start_mark);
        self.tally = Tally::default();
        self.refusal = None;
        self.has_content = false;
        (self.nodes, self.resources, self.scopes, self.expanded_bytes) = (0, 0, 0, 0);
        // Counted again after a restart, because the tally is new.
        if let Some(warning) = self.unpacking_warning {
            self.tally.warn(warning);
        }
    }

    /// Completes the delivery: fills the columns that have one value per delivery.
    ///
    /// # Errors
    /// If the last span exceeded a limit.
    pub fn finish(mut self) -> Result<Tally, Refusal> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        // An empty request is valid. Content without spans is probably a mistake of the sender.
        if self.tally.received == 0 && self.has_content {
            self.tally.warn(Warning::NoSpans);
        }
        let rows = rows_since(self.first_row, self.columns);
        if rows > 0 {
            let drain = self.columns.drains.dictionary.id_of_text(self.drain);
            self.columns.drains.runs.push(drain, rows);
            self.columns
                .received_ms
                .push((self.received_at_ns.div_euclid(1_000_000), rows));
        }
        self.tally.expanded_bytes = self.expanded_bytes;
        Ok(self.tally)
    }
}

fn rows_since(first_row: usize, columns: &Columns) -> u32 {
    u32::try_from(columns.rows() - first_row).unwrap_or(u32::MAX)
}

/// Adds `count` to a counter that has a limit.
#[inline]
fn spend(
    spent: &mut u32,
    count: u32,
    max: u32,
    field: &'static str,
    items: &str,
) -> Result<(), Refusal> {
    *spent = spent.saturating_add(count);
    if *spent <= max {
        return Ok(());
    }
    Err(limit_exceeded(max, field, items))
}

#[cold]
fn limit_exceeded(max: u32, field: &'static str, items: &str) -> Refusal {
    let reason = format!("more than {max} {items} in one body; send smaller batches");
    Refusal::too_large(field, reason)
}

impl Visitor for Rows<'_> {
    fn warn(&mut self, warning: Warning) {
        self.tally.warn(warning);
    }

    fn unknown_content(&mut self) {
        self.has_content = true;
    }

    fn restart(&mut self) {
        self.begin();
    }

    #[inline]
    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        spend(
            &mut self.nodes,
            count,
            self.policy.limits.nodes_max,
            "resource_spans",
            "attribute values",
        )
    }

    #[inline]
    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.spend_nodes(1)?;
        self.put(owner, key, Value::Text(value));
        Ok(())
    }

    #[inline]
    fn number(&mut self, owner: Owner, key: &[u8], number: Number) -> Result<(), Refusal> {
        self.spend_nodes(1)?;
        self.put(owner, key, Value::Number(number));
        Ok(())
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    fn repeated_attribute(&mut self, encoded: &[u8]) -> Result<bool, Refusal> {
        // Counted here only if it was added: otherwise the decoder parses and reports the attribute, and that call counts it.
        if !self.put_repeated(encoded) {
            return Ok(false);
        }
        self.spend_nodes(1)?;
        Ok(true)
    }

    #[inline]
    fn cache_attribute(&mut self, encoded: &[u8], key: &[u8], value: Value<'_>) {
        self.columns.attributes.remember(encoded, key, value);
    }

    fn resource_begin(&mut self) -> Result<(), Refusal> {
        spend(
            &mut self.resources,
            1,
            self.policy.limits.resources_max,
            "resource_spans",
            "resources",
        )?;
        self.open_resource();
        Ok(())
    }

    fn resource_ready(&mut self) {
        self.close_resource();
    }

    fn resource_end(&mut self, schema_url: &[u8]) {
        self.repeat_resource(schema_url);
    }

    fn scope_begin(&mut self) -> Result<(), Refusal> {
        spend(
            &mut self.scopes,
            1,
            self.policy.limits.scopes_max,
            "resource_spans.scope_spans",
            "scopes",
        )?;
        self.open_scope();
        Ok(())
    }

    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.close_scope(name, version);
    }

    fn scope_end(&mut self, schema_url: &[u8]) {
        self.repeat_scope(schema_url);
    }

    #[inline]
    fn span_begin(&mut self) -> Result<(), Refusal> {
        // `span_end` cannot return an error, so it stores its refusal here.
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        let max = self.policy.limits.spans_max;
        if self.tally.received >= max {
            return Err(limit_exceeded(
                max,
                "resource_spans.scope_spans.spans",
                "spans",
            ));
        }
        self.open_span();
        Ok(())
    }

    #[inline]
    fn span_end(&mut self, span: &Span<'_>) {
        self.close_span(span);
    }

    fn event_begin(&mut self) {
        self.open_event();
    }

    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.close_event(time_unix_nano, name);
    }

    fn link_begin(&mut self) {
        self.open_link();
    }

    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.close_link(ids, trace_state);
    }
}
