//! Model: computes the rows of a delivery in a simple and slow way.

use _transcode::limits::Limits;
use _transcode::schema::{KINDS, STATUSES};

use crate::deliveries::{Attributes, Ids, ResourceData, ScopeData, SpanData};
use crate::{DRAIN, RECEIVED_AT_NS, SEGMENT};

const S: u64 = 1_000_000_000;
/// Stored sampling columns when sampling is off.
const UNSAMPLED: [&str; 3] = [
    "SampleWeight=NULL",
    "SampleThreshold=NULL",
    "SampleReason=sampling is off",
];

/// Returns a string as stored.
fn stored(raw: &[u8], limits: &Limits) -> String {
    let cut = |raw: &[u8]| {
        let mut end = raw.len().min(limits.text_bytes_max);
        let floor = end.saturating_sub(3);
        while end > floor && raw.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
            end -= 1;
        }
        raw[..end].to_vec()
    };
    let replaced = String::from_utf8_lossy(&cut(raw)).into_owned();
    String::from_utf8(cut(replaced.as_bytes())).unwrap()
}

/// Returns the map of these attributes, and the number of dropped attributes.
fn map(attributes: &Attributes, limits: &Limits) -> (Vec<(String, String)>, u32) {
    let (mut map, mut dropped) = (Vec::<(String, String)>::new(), 0);
    for (key, value) in attributes {
        if map.len() >= limits.attributes_max as usize || key.len() > limits.key_bytes_max {
            dropped += 1;
            continue;
        }
        put(&mut map, &stored(key, limits), stored(value, limits));
    }
    (map, dropped)
}

fn put(map: &mut Vec<(String, String)>, key: &str, value: String) {
    match map.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => *known = value,
        None => map.push((key.to_owned(), value)),
    }
}

fn formatted(map: &[(String, String)]) -> String {
    let entries: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    format!("[{}]", entries.join(", "))
}

fn first_of(candidates: &[(&[(String, String)], &str)]) -> String {
    let value_of = |(map, key): &(&[(String, String)], &str)| {
        map.iter()
            .find(|(known, value)| known == key && !value.is_empty())
            .map(|(_, value)| value.clone())
    };
    candidates.iter().find_map(value_of).unwrap_or_default()
}

fn list(entries: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", entries.into_iter().collect::<Vec<_>>().join(", "))
}

fn hex(id: &[u8]) -> String {
    id.iter()
        .flat_map(|byte| [byte >> 4, byte & 0xF])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn saturated(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

/// Returns every stored row as `column=value` lines.
pub fn rows(delivery: &[ResourceData], limits: &Limits) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for resource in delivery {
        for scope in &resource.scopes {
            let valid = scope
                .spans
                .iter()
                .filter(|span| span.ids.0.is_ok() && span.ids.1.is_ok());
            rows.extend(valid.map(|span| row(resource, scope, span, limits)));
        }
    }
    rows
}

/// Returns timestamp, duration and the attributes that keep the times as sent.
fn times(span: &SpanData, attributes: &mut Vec<(String, String)>) -> (i64, u64) {
    let ((start, end), now) = (span.times, RECEIVED_AT_NS.unsigned_abs());
    let wrong = start < 631_152_000 * S || start > now + 3_600 * S;
    let replaced = wrong || start < now - 27 * 86_400 * S;
    if replaced {
        put(
            attributes,
            "trace_drain.start_time_unix_nano",
            start.to_string(),
        );
    }
    let beyond = i64::try_from(end).is_err();
    if beyond {
        put(
            attributes,
            "trace_drain.end_time_unix_nano",
            end.to_string(),
        );
    }
    let timestamp = if replaced {
        RECEIVED_AT_NS
    } else {
        saturated(start)
    };
    (
        timestamp,
        if beyond || start == 0 {
            0
        } else {
            end.saturating_sub(start)
        },
    )
}

fn enum_name<'a>(
    names: &[&'a str],
    number: i32,
    key: &str,
    attributes: &mut Vec<(String, String)>,
) -> &'a str {
    usize::try_from(number)
        .ok()
        .and_then(|at| names.get(at))
        .copied()
        .unwrap_or_else(|| {
            put(attributes, key, number.to_string());
            names[0]
        })
}

fn row(
    resource: &ResourceData,
    scope: &ScopeData,
    span: &SpanData,
    limits: &Limits,
) -> Vec<String> {
    let (resource_map, _) = map(&resource.attributes, limits);
    let (scope_map, _) = map(&scope.attributes, limits);
    let (sent, dropped_attributes) = map(&span.attributes, limits);
    let mut attributes = sent.clone();
    let (timestamp, duration) = times(span, &mut attributes);
    let kind = enum_name(&KINDS, span.numbers.0, "trace_drain.kind", &mut attributes);
    let status = enum_name(
        &STATUSES,
        span.numbers.1,
        "trace_drain.status_code",
        &mut attributes,
    );
    let text = |raw: &[u8]| stored(raw, limits);
    let project = first_of(&[
        (&sent, "p.span"),
        (&resource_map, "p.resource"),
        (&sent, "sampling.priority"),
    ]);
    let mut row = vec![format!("Timestamp={timestamp}")];
    row.extend(identity(span));
    row.extend([
        format!("TraceState={}", text(&span.texts[0])),
        format!("SpanName={}", text(&span.texts[1])),
        format!("SpanKind={kind}"),
        format!(
            "ServiceName={}",
            first_of(&[(&resource_map, "service.name")])
        ),
        format!("ResourceAttributes={}", formatted(&resource_map)),
        format!("ScopeName={}", text(&scope.name)),
        format!("ScopeVersion={}", text(&scope.version)),
        format!("SpanAttributes={}", formatted(&attributes)),
        format!("Duration={duration}"),
        format!("StatusCode={status}"),
        format!("StatusMessage={}", text(&span.texts[2])),
    ]);
    row.extend(nested(span, limits));
    row.push(format!("ProjectId={project}"));
    row.push(format!("DeploymentId={}", first_of(&[(&sent, "d.span")])));
    row.extend(counts(span, dropped_attributes, limits));
    row.push(format!("ScopeAttributes={}", formatted(&scope_map)));
    row.push(format!("ResourceSchemaUrl={}", text(&resource.schema_url)));
    row.push(format!("ScopeSchemaUrl={}", text(&scope.schema_url)));
    row.extend(UNSAMPLED.map(str::to_owned));
    row
}

fn identity(span: &SpanData) -> [String; 3] {
    let parent = span
        .parent
        .filter(|id| *id != [0; 8])
        .map(|id| hex(&id))
        .unwrap_or_default();
    [
        format!("TraceId={}", hex(&span.ids.0.unwrap())),
        format!("SpanId={}", hex(&span.ids.1.unwrap())),
        format!("ParentSpanId={parent}"),
    ]
}

fn kept_events(span: &SpanData, limits: &Limits) -> usize {
    span.events.len().min(limits.events_max as usize)
}

fn nested(span: &SpanData, limits: &Limits) -> [String; 7] {
    let (events, links) = (
        &span.events[..kept_events(span, limits)],
        kept_links(span, limits),
    );
    let text = |raw: &[u8]| stored(raw, limits);
    let own_map = |attributes: &Attributes| formatted(&map(attributes, limits).0);
    [
        format!(
            "Events.Timestamp={}",
            list(
                events
                    .iter()
                    .map(|(time, _, _)| saturated(*time).to_string())
            )
        ),
        format!(
            "Events.Name={}",
            list(events.iter().map(|(_, name, _)| text(name)))
        ),
        format!(
            "Events.Attributes={}",
            list(events.iter().map(|(_, _, attributes)| own_map(attributes)))
        ),
        format!(
            "Links.TraceId={}",
            list(links.iter().map(|(ids, _, _)| hex(&ids.0)))
        ),
        format!(
            "Links.SpanId={}",
            list(links.iter().map(|(ids, _, _)| hex(&ids.1)))
        ),
        format!(
            "Links.TraceState={}",
            list(links.iter().map(|(_, state, _)| text(state)))
        ),
        format!(
            "Links.Attributes={}",
            list(links.iter().map(|(_, _, attributes)| own_map(attributes)))
        ),
    ]
}

/// Returns the columns from `Drain` to `DroppedLinksCount`.
fn counts(span: &SpanData, dropped_attributes: u32, limits: &Limits) -> [String; 8] {
    let (epoch, seq) = (SEGMENT.epoch.cast_signed(), SEGMENT.seq.cast_signed());
    let count = |sent: u32, dropped_by_limits: usize| {
        sent.saturating_add(u32::try_from(dropped_by_limits).unwrap())
    };
    let dropped_events = span.events.len() - kept_events(span, limits);
    let dropped_links = span.links.len() - kept_links(span, limits).len();
    [
        format!("Drain={DRAIN}"),
        format!("ReceivedAt={}", RECEIVED_AT_NS / 1_000_000),
        format!("SegmentEpoch={epoch}"),
        format!("SegmentSeq={seq}"),
        format!("TraceFlags={}", span.numbers.2),
        format!(
            "DroppedAttributesCount={}",
            span.dropped[0].saturating_add(dropped_attributes)
        ),
        format!(
            "DroppedEventsCount={}",
            count(span.dropped[1], dropped_events)
        ),
        format!(
            "DroppedLinksCount={}",
            count(span.dropped[2], dropped_links)
        ),
    ]
}

type Link<'a> = (Ids, &'a Vec<u8>, &'a Attributes);

/// Returns the links with ids, up to the limit; invalid links do not count against it.
fn kept_links<'a>(span: &'a SpanData, limits: &Limits) -> Vec<Link<'a>> {
    let good = span
        .links
        .iter()
        .filter_map(|(ids, state, attributes)| ids.map(|ids| (ids, state, attributes)));
    good.take(limits.links_max as usize).collect()
}
