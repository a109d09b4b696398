//! Visitor that records the calls of a JSON decoder, and bodies for tests.
#![allow(dead_code, reason = "each test file uses only a part")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a panic fails the test")]

use std::fmt::Write as _;

use _transcode::json::{self, Scratch};
use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::visit::{Owner, Span, Visitor, Warning};

/// Recorded calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub lines: Vec<String>,
    pub warnings: Vec<Warning>,
    pub stored: u32,
    pub rejected: u32,
    pub unknown: u32,
    pub nodes: u32,
    pub nodes_max: Option<u32>,
    pub restarts: u32,
}

impl Recording {
    fn record(&mut self, line: String) {
        self.lines.push(line);
    }

    pub fn text(&self) -> String {
        self.lines.join("⏎")
    }

    pub fn warning_keys(&self) -> String {
        let keys: Vec<_> = self.warnings.iter().map(|warning| warning.key()).collect();
        keys.join(" ")
    }
}

/// Returns the bytes as text, with symbols for control characters.
fn lossy(bytes: &[u8]) -> String {
    let picture = |letter: char| match u32::from(letter) {
        control @ 0..0x20 => char::from_u32(0x2400 + control).unwrap_or(letter),
        _ => letter,
    };
    String::from_utf8_lossy(bytes)
        .chars()
        .map(picture)
        .collect()
}

fn hex(id: &[u8]) -> String {
    let mut out = String::new();
    for byte in id {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

impl Visitor for Recording {
    fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }
    fn unknown_content(&mut self) {
        self.unknown += 1;
    }
    fn restart(&mut self) {
        *self = Self {
            restarts: self.restarts + 1,
            nodes_max: self.nodes_max,
            ..Self::default()
        };
    }
    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal> {
        self.nodes += count;
        match self.nodes_max {
            Some(nodes_max) if self.nodes > nodes_max => {
                Err(Refusal::too_large("attributes", "too many nodes"))
            }
            _ => Ok(()),
        }
    }
    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.record(format!("{owner:?}.{}={}", lossy(key), lossy(value)));
        self.spend_nodes(1)
    }
    fn resource_begin(&mut self) -> Result<(), Refusal> {
        self.record("resource{".into());
        Ok(())
    }
    fn resource_ready(&mut self) {
        self.record("resource:".into());
    }
    fn resource_end(&mut self, schema_url: &[u8]) {
        self.record(format!("}}resource {}", lossy(schema_url)));
    }
    fn scope_begin(&mut self) -> Result<(), Refusal> {
        self.record("scope{".into());
        Ok(())
    }
    fn scope_ready(&mut self, name: &[u8], version: &[u8]) {
        self.record(format!("scope {}@{}:", lossy(name), lossy(version)));
    }
    fn scope_end(&mut self, schema_url: &[u8]) {
        self.record(format!("}}scope {}", lossy(schema_url)));
    }
    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.record("span{".into());
        Ok(())
    }
    fn span_end(&mut self, span: &Span<'_>) {
        let ids = span
            .trace_id
            .and_then(|trace_id| span.span_id.map(|span_id| (trace_id, span_id)));
        let ids = match ids {
            Ok((trace_id, span_id)) => {
                self.stored += 1;
                format!("{}/{}", hex(&trace_id), hex(&span_id))
            }
            Err(rejection) => {
                self.rejected += 1;
                format!("!{}", rejection.key())
            }
        };
        self.record(format!(
            "}}span {ids} parent={} state={} name={} kind={} {}..{} status={}:{} flags={} dropped={},{},{}.",
            span.parent_span_id.map(|id| hex(&id)).unwrap_or_default(),
            lossy(span.trace_state),
            lossy(span.name),
            span.kind,
            span.start_unix_nano,
            span.end_unix_nano,
            span.status_code,
            lossy(span.status_message),
            span.flags,
            span.dropped_attributes_count,
            span.dropped_events_count,
            span.dropped_links_count,
        ));
    }
    fn event_begin(&mut self) {
        self.record("event{".into());
    }
    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]) {
        self.record(format!("}}event {time_unix_nano} {}", lossy(name)));
    }
    fn link_begin(&mut self) {
        self.record("link{".into());
    }
    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        let ids = ids.map(|(trace_id, span_id)| format!("{}/{}", hex(&trace_id), hex(&span_id)));
        self.record(format!(
            "}}link {} {}",
            ids.unwrap_or_default(),
            lossy(trace_state)
        ));
    }
}

/// Decodes a body.
pub fn decode(body: impl AsRef<[u8]>) -> Result<Recording, Refusal> {
    decode_within(body, &Limits::default(), false)
}

pub fn decode_within(
    body: impl AsRef<[u8]>,
    limits: &Limits,
    ndjson: bool,
) -> Result<Recording, Refusal> {
    let mut recording = Recording::default();
    json::decode(
        body.as_ref(),
        limits,
        ndjson,
        &mut Scratch::default(),
        &mut recording,
    )?;
    Ok(recording)
}

pub const IDS: &str = r#""traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174""#;

/// Returns a request with these spans.
pub fn request(spans: &str) -> String {
    format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"svc"}}}}]}},"scopeSpans":[{{"scope":{{"name":"s"}},"spans":[{spans}]}}]}}]}}"#
    )
}

/// Returns a request with one valid span that has these additional members.
pub fn span_with(members: &str) -> String {
    request(&format!(
        r#"{{{IDS},"name":"a","kind":2,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000",{members}}}"#
    ))
}

/// Returns a request with one valid span that has the attribute `k` with this value.
pub fn attribute_with(value: &str) -> String {
    span_with(&format!(r#""attributes":[{{"key":"k","value":{value}}}]"#))
}

/// Decodes a body that must be valid.
#[track_caller]
pub fn recording_of(body: &str) -> Recording {
    decode(body).unwrap_or_else(|refusal| panic!("{body}: {refusal}"))
}

/// Decodes a body that must be refused.
pub fn refusal_of(body: impl AsRef<[u8]>) -> Refusal {
    decode(body).unwrap_err()
}

/// Splits a table into rows of four columns, separated by ` | `.
pub fn cells(table: &str) -> impl Iterator<Item = [String; 4]> {
    table.lines().filter(|row| !row.is_empty()).map(|row| {
        let row = format!("{row} ");
        let cells: Vec<_> = row.split(" | ").collect();
        let cell = |column: usize| cells.get(column).copied().unwrap_or_default();
        [cell(0).trim(), cell(1), cell(2), cell(3).trim()].map(str::to_owned)
    })
}
