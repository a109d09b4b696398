//! OTLP/JSON: a request body told to a [`Visitor`] in one pass, without a tree.
//!
//! ```text
//! request     envelopes, their order, second passes
//! span        a span, its events and links
//! integers    its times, counts and enums
//! attributes  lists of key and value; predicted: the usual one at a glance
//! nested      a value, however nested; any_value and scalar: what it may be made of
//! reader      names (field), texts (strings), what to skip
//! cursor      brackets, commas, strings (scan), numbers
//! hint        what else the body may be
//! ```
//!
//! Keeps: a tolerant reader. What has one sensible meaning is read, with a warning if OTLP says
//! otherwise; only what is no JSON, or no trace request, is refused.
//! Never: recurses on nesting; goes through a double where an integer was sent.

mod any_value;
mod attributes;
mod cursor;
mod field;
mod hint;
mod integers;
mod nested;
mod number;
mod predicted;
mod reader;
mod request;
mod scalar;
mod scan;
mod skip;
mod span;
mod stop;
mod strings;

use crate::limits::Limits;
use crate::refusal::{Refusal, Verdict};
use crate::visit::Visitor;
use cursor::{Cursor, Shape};
use nested::Frame;
use reader::Reader;
use stop::{Outcome, Reason};

/// Buffers that are used again for every delivery.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Texts whose escapes were undone.
    arena: Vec<u8>,
    /// The attribute value being rendered.
    rendered: Vec<u8>,
    /// Bytes between two spellings in base64.
    decoded: Vec<u8>,
    /// The containers open in it.
    frames: Vec<Frame>,
    /// The containers open in a value that is passed over.
    nesting: Vec<Shape>,
}

/// A buffer that grew larger is given back after the delivery.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Scratch {
    fn settle(&mut self) {
        self.arena.clear();
        self.rendered.clear();
        self.frames.clear();
        self.arena.shrink_to(KEPT_BYTES_MAX);
        self.rendered.shrink_to(KEPT_BYTES_MAX);
        self.decoded.clear();
        self.decoded.shrink_to(KEPT_BYTES_MAX);
    }
}

/// What kind of body is read, and how.
#[derive(Clone, Copy)]
struct Manner<'l> {
    limits: &'l Limits,
    ndjson: bool,
    /// Two passes over each resource and scope.
    is_careful: bool,
}

/// Tells `visitor` what a JSON body says. With `ndjson` it is one request a line, blank lines aside.
///
/// # Errors
/// When the body is not what it should be, or the visitor has had enough. The visitor then forgets
/// what it was told.
pub fn decode<V: Visitor>(
    body: &[u8],
    limits: &Limits,
    ndjson: bool,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> Result<(), Refusal> {
    let manner = Manner {
        limits,
        ndjson,
        is_careful: false,
    };
    let told = read(body, manner, scratch, visitor).or_else(|stop| match *stop.0 {
        Reason::Late => {
            visitor.restart();
            scratch.settle();
            read(
                body,
                Manner {
                    is_careful: true,
                    ..manner
                },
                scratch,
                visitor,
            )
        }
        Reason::Refused(_) => Err(stop),
    });
    scratch.settle();
    told.map_err(|stop| refusal(body, *stop.0))
}

/// Why the body is refused, by its likeliest name.
#[cold]
fn refusal(body: &[u8], reason: Reason) -> Refusal {
    match reason {
        Reason::Refused(refusal)
            if refusal.verdict == Verdict::Malformed && refusal.field == "body" =>
        {
            hint::known_mistake(body).map_or(refusal, |reason| Refusal::malformed("body", reason))
        }
        Reason::Refused(refusal) => refusal,
        Reason::Late => {
            Refusal::malformed("resource_spans", "a second resource or scope; expected one")
        }
    }
}

fn read<V: Visitor>(
    body: &[u8],
    manner: Manner<'_>,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> Outcome<()> {
    let mut start = hint::byte_order_mark(body);
    if !manner.ndjson {
        return document(body, start, manner, scratch, visitor);
    }
    while let Some(rest) = body.get(start..).filter(|rest| !rest.is_empty()) {
        let line_bytes = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let end = start + line_bytes;
        if rest
            .iter()
            .take(line_bytes)
            .any(|byte| !byte.is_ascii_whitespace())
        {
            document(
                body.get(..end).unwrap_or(body),
                start,
                manner,
                scratch,
                visitor,
            )?;
        }
        start = end + 1;
    }
    Ok(())
}

/// Reads the one document that begins at `start` and ends with `bytes`.
fn document<V: Visitor>(
    bytes: &[u8],
    start: usize,
    manner: Manner<'_>,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> Outcome<()> {
    let mut cursor = Cursor::new(bytes, start, manner.limits);
    let first = cursor.peek();
    if first != Some(b'{') {
        return Err(hint::not_an_object(bytes.get(start..).unwrap_or_default(), first).into());
    }
    let mut reader = Reader::new(cursor, manner, scratch, visitor);
    reader.request()?;
    if reader.cursor.peek().is_some() {
        return Err(hint::trailing(manner.ndjson, reader.cursor.offset()).into());
    }
    Ok(())
}
