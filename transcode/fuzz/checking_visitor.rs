//! Visitor that keeps only counts, a digest and its position, and panics if it is called out of order or
//! after it reported that a limit is exceeded.

use std::hash::{DefaultHasher, Hash, Hasher};

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Span, Visitor, Warning};

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
struct State {
    digest: DefaultHasher,
    bytes: usize,
    position: Position,
    refused: bool,
    resources: u32,
    scopes: u32,
    spans: u32,
    nodes: u32,
}

pub struct CheckingVisitor<'l> {
    limits: &'l Limits,
    state: State,
}

impl<'l> CheckingVisitor<'l> {
    pub fn within(limits: &'l Limits) -> Self {
        Self {
            limits,
            state: State::default(),
        }
    }

    /// Checks the state after the decoder returned: an accepted body was reported completely, a refusal was
    /// passed on.
    pub fn assert_finished(&self, is_ok: bool) {
        assert!(
            !(is_ok && self.state.refused),
            "the visitor's refusal was not passed on"
        );
        assert!(
            !is_ok || self.state.position == Position::Outside,
            "assert_finished in {:?}",
            self.state.position
        );
    }

    pub fn reported_bytes(&self) -> usize {
        self.state.bytes
    }

    pub fn digest(&self) -> u64 {
        self.state.digest.finish()
    }

    fn transition(&mut self, from: Position, to: Position) {
        assert!(!self.state.refused, "called again after a refusal");
        assert_eq!(
            self.state.position, from,
            "called out of order, before {to:?}"
        );
        self.state.position = to;
        (to as u8).hash(&mut self.state.digest);
    }

    fn text(&mut self, text: &[u8]) {
        self.state.bytes += text.len();
        text.hash(&mut self.state.digest);
    }

    fn number(&mut self, number: impl Hash) {
        number.hash(&mut self.state.digest);
    }

    fn allow(&mut self, count: u32, max: u32) -> Result<(), Refusal> {
        self.state.refused = count > max;
        if self.state.refused {
            Err(Refusal::too_large("body", "a limit is exceeded"))
        } else {
            Ok(())
        }
    }
}

impl Visitor for CheckingVisitor<'_> {
    fn warn(&mut self, warning: Warning) {
        self.number(warning);
    }

    fn unknown_content(&mut self) {
        assert_ne!(
            self.state.position,
            Position::Span,
            "unknown content inside a span was reported"
        );
        self.number(0_u8);
    }

    fn restart(&mut self) {
        self.state = State::default();
    }

    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        self.state.nodes = self.state.nodes.saturating_add(count);
        self.allow(self.state.nodes, self.limits.nodes_max)
    }

    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let position = match owner {
            Owner::Resource => Position::Resource,
            Owner::Scope => Position::Scope,
            Owner::Span => Position::Span,
            Owner::Event => Position::Event,
            Owner::Link => Position::Link,
        };
        self.transition(position, position);
        self.text(key);
        self.text(value);
        self.spend_nodes(1)
    }

    fn resource_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::Outside, Position::Resource);
        self.state.resources += 1;
        self.allow(self.state.resources, self.limits.resources_max)
    }

    fn resource_ready(&mut self) {
        self.transition(Position::Resource, Position::InResource);
    }

    fn resource_end(&mut self, schema_url: &[u8]) {
        self.transition(Position::InResource, Position::Outside);
        self.text(schema_url);
    }

    fn scope_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::InResource, Position::Scope);
        self.state.scopes += 1;
        self.allow(self.state.scopes, self.limits.scopes_max)
    }

    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.transition(Position::Scope, Position::InScope);
        self.text(name);
        self.text(version);
    }

    fn scope_end(&mut self, schema_url: &[u8]) {
        self.transition(Position::InScope, Position::InResource);
        self.text(schema_url);
    }

    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.transition(Position::InScope, Position::Span);
        self.state.spans += 1;
        self.allow(self.state.spans, self.limits.spans_max)
    }

    fn span_end(&mut self, span: &Span<'_>) {
        self.transition(Position::Span, Position::InScope);
        self.number((span.trace_id, span.span_id, span.parent_span_id));
        self.number((span.kind, span.status_code, span.flags));
        self.number((span.start_unix_nano, span.end_unix_nano));
        for text in [span.name, span.trace_state, span.status_message] {
            self.text(text);
        }
        let ids = (
            span.trace_id.unwrap_or([1; 16]),
            span.span_id.unwrap_or([1; 8]),
        );
        assert_ne!(ids.0, [0; 16], "an all-zero id was reported as valid");
        assert_ne!(ids.1, [0; 8], "an all-zero id was reported as valid");
    }

    fn event_begin(&mut self) {
        self.transition(Position::Span, Position::Event);
    }

    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.transition(Position::Event, Position::Span);
        self.number(time_unix_nano);
        self.text(name);
    }

    fn link_begin(&mut self) {
        self.transition(Position::Span, Position::Link);
    }

    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.transition(Position::Link, Position::Span);
        self.number(ids);
        self.text(trace_state);
    }
}
