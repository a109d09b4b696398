//! Random deliveries, reported to a visitor as a decoder would.

use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Rejection, Span, Visitor};
use proptest::collection::vec;
use proptest::prelude::*;

pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Ids of a linked span.
pub type Ids = ([u8; 16], [u8; 8]);

#[derive(Clone, Debug)]
pub struct ResourceData {
    pub attributes: Attributes,
    pub schema_url: Vec<u8>,
    pub scopes: Vec<ScopeData>,
}

#[derive(Clone, Debug)]
pub struct ScopeData {
    pub attributes: Attributes,
    pub name: Vec<u8>,
    pub version: Vec<u8>,
    pub schema_url: Vec<u8>,
    pub spans: Vec<SpanData>,
}

#[derive(Clone, Debug)]
pub struct SpanData {
    pub ids: (Result<[u8; 16], Rejection>, Result<[u8; 8], Rejection>),
    pub parent: Option<[u8; 8]>,
    pub texts: [Vec<u8>; 3],
    pub numbers: (i32, i32, u32),
    pub times: (u64, u64),
    pub dropped: [u32; 3],
    pub attributes: Attributes,
    pub events: Vec<(u64, Vec<u8>, Attributes)>,
    pub links: Vec<(Option<Ids>, Vec<u8>, Attributes)>,
}

impl SpanData {
    pub fn span(&self) -> Span<'_> {
        Span {
            trace_id: self.ids.0,
            span_id: self.ids.1,
            parent_span_id: self.parent,
            trace_state: &self.texts[0],
            name: &self.texts[1],
            kind: self.numbers.0,
            start_unix_nano: self.times.0,
            end_unix_nano: self.times.1,
            status_code: self.numbers.1,
            status_message: &self.texts[2],
            flags: self.numbers.2,
            dropped_attributes_count: self.dropped[0],
            dropped_events_count: self.dropped[1],
            dropped_links_count: self.dropped[2],
        }
    }
}

/// Few different strings, so that they repeat; some are not UTF-8, some too long, some have a role.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::sample::select(vec!["", "a", "b", "GET", "grün", "a text of more than sixteen bytes"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::sample::select(vec![&b"\xFF"[..], b"a\xC3", "\u{FFFD}".as_bytes(), &[b'x'; 45], &[0xE2; 50]])
            .prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "service.name",
        "p.resource",
        "p.span",
        "d.span",
        "trace_drain.kind",
        "sampling.priority",
    ];
    prop_oneof![
        2 => prop::sample::select(known.to_vec()).prop_map(|key| key.as_bytes().to_vec()),
        3 => text(),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    vec((key(), text()), 0..7)
}

fn time() -> impl Strategy<Value = u64> {
    let now = super::RECEIVED_AT_NS.unsigned_abs();
    prop_oneof![
        4 => now - 1_000..now + 1_000,
        1 => prop::sample::select(vec![0, 1, now - 40 * 86_400 * 1_000_000_000, now + 4_000 * 1_000_000_000, u64::MAX]),
    ]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX)]
}

fn trace_id() -> impl Strategy<Value = [u8; 16]> {
    (0..4_u8).prop_map(|byte| [byte + 1; 16])
}

fn span() -> impl Strategy<Value = SpanData> {
    let trace = prop_oneof![9 => trace_id().prop_map(Ok), 1 => Just(Err(Rejection::TraceIdZero))];
    let own =
        prop_oneof![9 => any::<[u8; 8]>().prop_map(Ok), 1 => Just(Err(Rejection::SpanIdMissing))];
    let link = (
        prop::option::weighted(0.8, (trace_id(), any::<[u8; 8]>())),
        text(),
        attributes(),
    );
    (
        (trace, own),
        prop::option::of(any::<[u8; 8]>()),
        [text(), text(), text()],
        (-1..8_i32, -1..4_i32, any::<u32>()),
        (time(), time()),
        [count(), count(), count()],
        attributes(),
        vec((time(), text(), attributes()), 0..5),
        vec(link, 0..5),
    )
        .prop_map(
            |(ids, parent, texts, numbers, times, dropped, attributes, events, links)| SpanData {
                ids,
                parent,
                texts,
                numbers,
                times,
                dropped,
                attributes,
                events,
                links,
            },
        )
}

fn scope() -> impl Strategy<Value = ScopeData> {
    (attributes(), text(), text(), text(), vec(span(), 0..6)).prop_map(
        |(attributes, name, version, schema_url, spans)| ScopeData {
            attributes,
            name,
            version,
            schema_url,
            spans,
        },
    )
}

/// A random delivery.
pub fn delivery() -> impl Strategy<Value = Vec<ResourceData>> {
    let resource =
        (attributes(), text(), vec(scope(), 0..3)).prop_map(|(attributes, schema_url, scopes)| {
            ResourceData {
                attributes,
                schema_url,
                scopes,
            }
        });
    vec(resource, 0..3)
}

fn report_attributes(
    visitor: &mut impl Visitor,
    owner: Owner,
    attributes: &Attributes,
) -> Result<(), Refusal> {
    attributes
        .iter()
        .try_for_each(|(key, value)| visitor.attribute(owner, key, value))
}

/// Reports a delivery to the visitor.
pub fn report(delivery: &[ResourceData], visitor: &mut impl Visitor) -> Result<(), Refusal> {
    for resource in delivery {
        visitor.resource_begin()?;
        report_attributes(visitor, Owner::Resource, &resource.attributes)?;
        visitor.resource_ready();
        for scope in &resource.scopes {
            visitor.scope_begin()?;
            report_attributes(visitor, Owner::Scope, &scope.attributes)?;
            visitor.scope_ready(&scope.name, &scope.version);
            scope
                .spans
                .iter()
                .try_for_each(|span| report_span(span, visitor))?;
            visitor.scope_end(&scope.schema_url);
        }
        visitor.resource_end(&resource.schema_url);
    }
    Ok(())
}

fn report_span(span: &SpanData, visitor: &mut impl Visitor) -> Result<(), Refusal> {
    visitor.span_begin()?;
    report_attributes(visitor, Owner::Span, &span.attributes)?;
    for (time, name, attributes) in &span.events {
        visitor.event_begin();
        report_attributes(visitor, Owner::Event, attributes)?;
        visitor.event_end(*time, name);
    }
    for (ids, trace_state, attributes) in &span.links {
        visitor.link_begin();
        report_attributes(visitor, Owner::Link, attributes)?;
        visitor.link_end(*ids, trace_state);
    }
    visitor.span_end(&span.span());
    Ok(())
}
