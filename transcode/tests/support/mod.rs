//! Visitor that records its calls, and panics if it is called out of order.

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Rejection, Span, Visitor, Warning};

/// Key and stored text.
pub type Attributes = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    pub resources: Vec<RecordedResource>,
    pub warnings: Vec<Warning>,
    pub unknown_count: usize,
    pub node_count: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedResource {
    pub attributes: Attributes,
    pub schema_url: String,
    pub scopes: Vec<RecordedScope>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedScope {
    pub name: String,
    pub version: String,
    pub attributes: Attributes,
    pub schema_url: String,
    pub spans: Vec<RecordedSpan>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedSpan {
    pub fields: Fields,
    pub attributes: Attributes,
    pub events: Vec<RecordedEvent>,
    pub links: Vec<RecordedLink>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    pub trace_id: Result<[u8; 16], Rejection>,
    pub span_id: Result<[u8; 8], Rejection>,
    pub parent_span_id: Option<[u8; 8]>,
    pub trace_state: String,
    pub name: String,
    pub kind: i32,
    pub times: (u64, u64),
    pub status: (i32, String),
    pub flags: u32,
    pub dropped: (u32, u32, u32),
}

impl Default for Fields {
    fn default() -> Self {
        Self::from(&Span::default())
    }
}

impl From<&Span<'_>> for Fields {
    fn from(span: &Span<'_>) -> Self {
        Self {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_span_id: span.parent_span_id,
            trace_state: readable(span.trace_state),
            name: readable(span.name),
            kind: span.kind,
            times: (span.start_unix_nano, span.end_unix_nano),
            status: (span.status_code, readable(span.status_message)),
            flags: span.flags,
            dropped: (
                span.dropped_attributes_count,
                span.dropped_events_count,
                span.dropped_links_count,
            ),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedEvent {
    pub time_unix_nano: u64,
    pub name: String,
    pub attributes: Attributes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedLink {
    pub ids: Option<([u8; 16], [u8; 8])>,
    pub trace_state: String,
    pub attributes: Attributes,
}

impl Recording {
    pub fn spans(&self) -> impl Iterator<Item = &RecordedSpan> {
        self.resources
            .iter()
            .flat_map(|resource| &resource.scopes)
            .flat_map(|scope| &scope.spans)
    }

    /// Returns how many spans a receiver would keep, and how many it would reject.
    pub fn kept_and_rejected(&self) -> (usize, usize) {
        let is_kept =
            |span: &&RecordedSpan| span.fields.trace_id.is_ok() && span.fields.span_id.is_ok();
        let kept = self.spans().filter(is_kept).count();
        (kept, self.spans().count() - kept)
    }
}

/// The element that is being reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Position {
    #[default]
    Outside,
    Resource,
    InResource,
    Scope,
    InScope,
    Span,
    Event,
    Link,
}

#[derive(Default)]
pub struct Recorder {
    limits: Limits,
    pub recording: Recording,
    position: Position,
    resources: u32,
    scopes: u32,
    spans: u32,
}

fn readable(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

fn spend(spent: &mut u32, limit: u32, what: &'static str) -> Result<(), Refusal> {
    *spent += 1;
    if *spent > limit {
        Err(Refusal::too_large(what, "limit exceeded"))
    } else {
        Ok(())
    }
}

impl Recorder {
    pub fn within(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    fn transition(&mut self, from: Position, to: Position) {
        assert_eq!(self.position, from, "called out of order, before {to:?}");
        self.position = to;
    }

    fn resource(&mut self) -> &mut RecordedResource {
        self.recording.resources.last_mut().unwrap()
    }

    fn scope(&mut self) -> &mut RecordedScope {
        self.resource().scopes.last_mut().unwrap()
    }

    fn span(&mut self) -> &mut RecordedSpan {
        self.scope().spans.last_mut().unwrap()
    }
}

impl Visitor for Recorder {
    fn warn(&mut self, warning: Warning) {
        self.recording.warnings.push(warning);
    }

    fn unknown_content(&mut self) {
        self.recording.unknown_count += 1;
    }

    fn restart(&mut self) {
        *self = Self::within(self.limits);
    }

    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        self.recording.node_count += count - 1;
        spend(
            &mut self.recording.node_count,
            self.limits.nodes_max,
            "nodes",
        )
    }

    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.spend_nodes(1)?;
        let (position, attributes) = match owner {
            Owner::Resource => (Position::Resource, &mut self.resource().attributes),
            Owner::Scope => (Position::Scope, &mut self.scope().attributes),
            Owner::Span => (Position::Span, &mut self.span().attributes),
            Owner::Event => (
                Position::Event,
                &mut self.span().events.last_mut().unwrap().attributes,
            ),
            Owner::Link => (
                Position::Link,
                &mut self.span().links.last_mut().unwrap().attributes,
            ),
        };
        attributes.push((readable(key), readable(value)));
        self.transition(position, position);
        Ok(())
    }

    fn resource_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::Outside, Position::Resource);
        self.recording.resources.push(RecordedResource::default());
        spend(&mut self.resources, self.limits.resources_max, "resources")
    }

    fn resource_ready(&mut self) {
        self.transition(Position::Resource, Position::InResource);
    }

    fn resource_end(&mut self, schema_url: &[u8]) {
        self.transition(Position::InResource, Position::Outside);
        self.resource().schema_url = readable(schema_url);
    }

    fn scope_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::InResource, Position::Scope);
        self.resource().scopes.push(RecordedScope::default());
        spend(&mut self.scopes, self.limits.scopes_max, "scopes")
    }

    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.transition(Position::Scope, Position::InScope);
        let scope = self.scope();
        (scope.name, scope.version) = (readable(name), readable(version));
    }

    fn scope_end(&mut self, schema_url: &[u8]) {
        self.transition(Position::InScope, Position::InResource);
        self.scope().schema_url = readable(schema_url);
    }

    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::InScope, Position::Span);
        self.scope().spans.push(RecordedSpan::default());
        spend(&mut self.spans, self.limits.spans_max, "spans")
    }

    fn span_end(&mut self, span: &Span<'_>) {
        self.transition(Position::Span, Position::InScope);
        self.span().fields = Fields::from(span);
    }

    fn event_begin(&mut self) {
        self.transition(Position::Span, Position::Event);
        self.span().events.push(RecordedEvent::default());
    }

    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.transition(Position::Event, Position::Span);
        let event = self.span().events.last_mut().unwrap();
        (event.time_unix_nano, event.name) = (time_unix_nano, readable(name));
    }

    fn link_begin(&mut self) {
        self.transition(Position::Span, Position::Link);
        self.span().links.push(RecordedLink::default());
    }

    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.transition(Position::Link, Position::Span);
        let link = self.span().links.last_mut().unwrap();
        (link.ids, link.trace_state) = (ids, readable(trace_state));
    }
}
