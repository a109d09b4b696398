//! A listener that keeps nothing but counts, a digest and the place in the story, and panics when it
//! is told out of turn or beyond a limit it has called.

use std::hash::{DefaultHasher, Hash, Hasher};

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Span, Visitor, Warning};

/// Which part of the story is being told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Scene {
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
struct Told {
    digest: DefaultHasher,
    bytes: usize,
    scene: Scene,
    refused: bool,
    resources: u32,
    scopes: u32,
    spans: u32,
    nodes: u32,
}

pub struct Listener<'l> {
    limits: &'l Limits,
    told: Told,
}

impl<'l> Listener<'l> {
    pub fn within(limits: &'l Limits) -> Self {
        Self {
            limits,
            told: Told::default(),
        }
    }

    /// The decoder has returned: what was read whole was told whole, and a refusal was passed on.
    pub fn ended(&self, is_ok: bool) {
        assert!(
            !(is_ok && self.told.refused),
            "the listener's refusal was not passed on"
        );
        assert!(
            !is_ok || self.told.scene == Scene::Outside,
            "ended in {:?}",
            self.told.scene
        );
    }

    pub fn told_bytes(&self) -> usize {
        self.told.bytes
    }

    pub fn digest(&self) -> u64 {
        self.told.digest.finish()
    }

    fn turn(&mut self, from: Scene, to: Scene) {
        assert!(!self.told.refused, "told on after a refusal");
        assert_eq!(self.told.scene, from, "told out of turn, before {to:?}");
        self.told.scene = to;
        (to as u8).hash(&mut self.told.digest);
    }

    fn text(&mut self, text: &[u8]) {
        self.told.bytes += text.len();
        text.hash(&mut self.told.digest);
    }

    fn number(&mut self, number: impl Hash) {
        number.hash(&mut self.told.digest);
    }

    fn allow(&mut self, count: u32, max: u32) -> Result<(), Refusal> {
        self.told.refused = count > max;
        if self.told.refused {
            Err(Refusal::too_large("body", "over a limit"))
        } else {
            Ok(())
        }
    }
}

impl Visitor for Listener<'_> {
    fn warn(&mut self, warning: Warning) {
        self.number(warning);
    }

    fn unknown_content(&mut self) {
        assert_ne!(
            self.told.scene,
            Scene::Span,
            "unknown content inside a span is no news"
        );
        self.number(0_u8);
    }

    fn restart(&mut self) {
        self.told = Told::default();
    }

    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        self.told.nodes = self.told.nodes.saturating_add(count);
        self.allow(self.told.nodes, self.limits.nodes_max)
    }

    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let scene = match owner {
            Owner::Resource => Scene::Resource,
            Owner::Scope => Scene::Scope,
            Owner::Span => Scene::Span,
            Owner::Event => Scene::Event,
            Owner::Link => Scene::Link,
        };
        self.turn(scene, scene);
        self.text(key);
        self.text(value);
        self.spend_nodes(1)
    }

    fn resource_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::Outside, Scene::Resource);
        self.told.resources += 1;
        self.allow(self.told.resources, self.limits.resources_max)
    }

    fn resource_ready(&mut self) {
        self.turn(Scene::Resource, Scene::InResource);
    }

    fn resource_end(&mut self, schema_url: &[u8]) {
        self.turn(Scene::InResource, Scene::Outside);
        self.text(schema_url);
    }

    fn scope_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::InResource, Scene::Scope);
        self.told.scopes += 1;
        self.allow(self.told.scopes, self.limits.scopes_max)
    }

    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.turn(Scene::Scope, Scene::InScope);
        self.text(name);
        self.text(version);
    }

    fn scope_end(&mut self, schema_url: &[u8]) {
        self.turn(Scene::InScope, Scene::InResource);
        self.text(schema_url);
    }

    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::InScope, Scene::Span);
        self.told.spans += 1;
        self.allow(self.told.spans, self.limits.spans_max)
    }

    fn span_end(&mut self, span: &Span<'_>) {
        self.turn(Scene::Span, Scene::InScope);
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
        assert_ne!(ids.0, [0; 16], "an id of zeros is no id");
        assert_ne!(ids.1, [0; 8], "an id of zeros is no id");
    }

    fn event_begin(&mut self) {
        self.turn(Scene::Span, Scene::Event);
    }

    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.turn(Scene::Event, Scene::Span);
        self.number(time_unix_nano);
        self.text(name);
    }

    fn link_begin(&mut self) {
        self.turn(Scene::Span, Scene::Link);
    }

    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.turn(Scene::Link, Scene::Span);
        self.number(ids);
        self.text(trace_state);
    }
}
