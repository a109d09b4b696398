//! A listener that writes down what it is told, and panics when it is told out of turn.

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Rejection, Span, Visitor, Warning};

/// Key and stored text.
pub type Attributes = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    pub resources: Vec<ResourceTold>,
    pub warnings: Vec<Warning>,
    pub unknown_count: usize,
    pub node_count: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceTold {
    pub attributes: Attributes,
    pub schema_url: String,
    pub scopes: Vec<ScopeTold>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeTold {
    pub name: String,
    pub version: String,
    pub attributes: Attributes,
    pub schema_url: String,
    pub spans: Vec<SpanTold>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanTold {
    pub fields: Fields,
    pub attributes: Attributes,
    pub events: Vec<EventTold>,
    pub links: Vec<LinkTold>,
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
pub struct EventTold {
    pub time_unix_nano: u64,
    pub name: String,
    pub attributes: Attributes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTold {
    pub ids: Option<([u8; 16], [u8; 8])>,
    pub trace_state: String,
    pub attributes: Attributes,
}

impl Story {
    pub fn spans(&self) -> impl Iterator<Item = &SpanTold> {
        self.resources
            .iter()
            .flat_map(|resource| &resource.scopes)
            .flat_map(|scope| &scope.spans)
    }

    /// How many spans a listener would keep, and how many it would reject.
    pub fn kept_and_rejected(&self) -> (usize, usize) {
        let is_kept =
            |span: &&SpanTold| span.fields.trace_id.is_ok() && span.fields.span_id.is_ok();
        let kept = self.spans().filter(is_kept).count();
        (kept, self.spans().count() - kept)
    }
}

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
pub struct Recorder {
    limits: Limits,
    pub story: Story,
    scene: Scene,
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
        Err(Refusal::too_large(what, "over its limit"))
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

    fn turn(&mut self, from: Scene, to: Scene) {
        assert_eq!(self.scene, from, "told out of turn, before {to:?}");
        self.scene = to;
    }

    fn resource(&mut self) -> &mut ResourceTold {
        self.story.resources.last_mut().unwrap()
    }

    fn scope(&mut self) -> &mut ScopeTold {
        self.resource().scopes.last_mut().unwrap()
    }

    fn span(&mut self) -> &mut SpanTold {
        self.scope().spans.last_mut().unwrap()
    }
}

impl Visitor for Recorder {
    fn warn(&mut self, warning: Warning) {
        self.story.warnings.push(warning);
    }

    fn unknown_content(&mut self) {
        self.story.unknown_count += 1;
    }

    fn restart(&mut self) {
        *self = Self::within(self.limits);
    }

    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        self.story.node_count += count - 1;
        spend(&mut self.story.node_count, self.limits.nodes_max, "nodes")
    }

    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.spend_nodes(1)?;
        let (scene, attributes) = match owner {
            Owner::Resource => (Scene::Resource, &mut self.resource().attributes),
            Owner::Scope => (Scene::Scope, &mut self.scope().attributes),
            Owner::Span => (Scene::Span, &mut self.span().attributes),
            Owner::Event => (
                Scene::Event,
                &mut self.span().events.last_mut().unwrap().attributes,
            ),
            Owner::Link => (
                Scene::Link,
                &mut self.span().links.last_mut().unwrap().attributes,
            ),
        };
        attributes.push((readable(key), readable(value)));
        self.turn(scene, scene);
        Ok(())
    }

    fn resource_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::Outside, Scene::Resource);
        self.story.resources.push(ResourceTold::default());
        spend(&mut self.resources, self.limits.resources_max, "resources")
    }

    fn resource_ready(&mut self) {
        self.turn(Scene::Resource, Scene::InResource);
    }

    fn resource_end(&mut self, schema_url: &[u8]) {
        self.turn(Scene::InResource, Scene::Outside);
        self.resource().schema_url = readable(schema_url);
    }

    fn scope_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::InResource, Scene::Scope);
        self.resource().scopes.push(ScopeTold::default());
        spend(&mut self.scopes, self.limits.scopes_max, "scopes")
    }

    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.turn(Scene::Scope, Scene::InScope);
        let scope = self.scope();
        (scope.name, scope.version) = (readable(name), readable(version));
    }

    fn scope_end(&mut self, schema_url: &[u8]) {
        self.turn(Scene::InScope, Scene::InResource);
        self.scope().schema_url = readable(schema_url);
    }

    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.turn(Scene::InScope, Scene::Span);
        self.scope().spans.push(SpanTold::default());
        spend(&mut self.spans, self.limits.spans_max, "spans")
    }

    fn span_end(&mut self, span: &Span<'_>) {
        self.turn(Scene::Span, Scene::InScope);
        self.span().fields = Fields::from(span);
    }

    fn event_begin(&mut self) {
        self.turn(Scene::Span, Scene::Event);
        self.span().events.push(EventTold::default());
    }

    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.turn(Scene::Event, Scene::Span);
        let event = self.span().events.last_mut().unwrap();
        (event.time_unix_nano, event.name) = (time_unix_nano, readable(name));
    }

    fn link_begin(&mut self) {
        self.turn(Scene::Span, Scene::Link);
        self.span().links.push(LinkTold::default());
    }

    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.turn(Scene::Link, Scene::Span);
        let link = self.span().links.last_mut().unwrap();
        (link.ids, link.trace_state) = (ids, readable(trace_state));
    }
}
