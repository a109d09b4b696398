//! OTLP/JSON decoder: reports a request body to a [`Visitor`] in one pass, without building a tree.
//!
//! ```text
//! request     resources and scopes, in any order
//! span        spans with their events and links
//! integers    times, counts and enums
//! attributes  lists of attributes; `predicted` is the fast path for their usual encoding
//! nested      nested attribute values; uses `any_value` for objects and `scalar` for scalars
//! reader      member names (`field`), decoded strings (`strings`), skipped values (`skip`)
//! cursor      tokens: brackets, commas, strings (found by `scan`), numbers
//! hint        messages that say what a body that is not JSON probably is
//! ```
//!
//! Invariant: reading is tolerant. Input with only one sensible meaning is accepted, with a warning if OTLP
//! requires another form; only bodies that are not JSON or not a trace request are refused.
//! Never: recurses on nested input; converts an integer by way of a double.

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
use stop::{ReadResult, Reason};

/// Buffers that are reused for every delivery.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Decoded strings that contained escapes.
    arena: Vec<u8>,
    /// The attribute value being built.
    rendered: Vec<u8>,
    /// Decoded bytes while converting between two base64 alphabets.
    decoded: Vec<u8>,
    /// Stack of the open containers of the attribute value.
    frames: Vec<Frame>,
    /// Stack of the open containers of a skipped value.
    nesting: Vec<Shape>,
}

/// Buffers larger than this are freed after the delivery.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Scratch {
    fn reset(&mut self) {
        self.arena.clear();
        self.rendered.clear();
        // After an error the containers of the refused body are still open.
        self.frames.clear();
        self.arena.shrink_to(KEPT_BYTES_MAX);
        self.rendered.shrink_to(KEPT_BYTES_MAX);
        self.decoded.clear();
        self.decoded.shrink_to(KEPT_BYTES_MAX);
    }
}

/// Options of one pass over a body.
#[derive(Clone, Copy)]
struct Options<'l> {
    limits: &'l Limits,
    ndjson: bool,
    /// Whether every resource and scope is read in two passes.
    is_two_pass: bool,
}

/// Reports the content of a JSON body to `visitor`. With `ndjson` there is one request per line; blank
/// lines are skipped.
///
/// # Errors
/// If the body is invalid, or the visitor refuses it. The visitor must then discard everything reported so far.
pub fn decode<V: Visitor>(
    body: &[u8],
    limits: &Limits,
    ndjson: bool,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> Result<(), Refusal> {
    let options = Options {
        limits,
        ndjson,
        is_two_pass: false,
    };
    let result = read(body, options, scratch, visitor).or_else(|stop| match *stop.0 {
        Reason::LateOwner => {
            // Two passes skip every span once before it is read, so only such a body pays for them.
            visitor.restart();
            scratch.reset();
            read(
                body,
                Options {
                    is_two_pass: true,
                    ..options
                },
                scratch,
                visitor,
            )
        }
        Reason::Refused(_) => Err(stop),
    });
    scratch.reset();
    result.map_err(|stop| refusal(body, *stop.0))
}

/// Returns the refusal, with a hint if the sender made a common mistake.
#[cold]
fn refusal(body: &[u8], reason: Reason) -> Refusal {
    match reason {
        Reason::Refused(refusal)
            if refusal.verdict == Verdict::Malformed && refusal.field == "body" =>
        {
            hint::known_mistake(body).map_or(refusal, |reason| Refusal::malformed("body", reason))
        }
        Reason::Refused(refusal) => refusal,
        // Unreachable: with two passes, every resource and scope is read before its content.
        Reason::LateOwner => Refusal::malformed(
            "resource_spans",
            "a second resource or scope after the spans; expected one before them",
        ),
    }
}

fn read<V: Visitor>(
    body: &[u8],
    options: Options<'_>,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> ReadResult<()> {
    let mut start = hint::byte_order_mark(body);
    if !options.ndjson {
        return document(body, start, options, scratch, visitor);
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
                // The slice starts at the beginning of the body, so that offsets in messages count from there.
                body.get(..end).unwrap_or(body),
                start,
                options,
                scratch,
                visitor,
            )?;
        }
        start = end + 1;
    }
    Ok(())
}

/// Reads the single document from `start` to the end of `bytes`.
fn document<V: Visitor>(
    bytes: &[u8],
    start: usize,
    options: Options<'_>,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> ReadResult<()> {
    let mut cursor = Cursor::new(bytes, start, options.limits);
    let first = cursor.peek();
    if first != Some(b'{') {
        return Err(hint::not_an_object(bytes.get(start..).unwrap_or_default(), first).into());
    }
    let mut reader = Reader::new(cursor, options, scratch, visitor);
    reader.request()?;
    if reader.cursor.peek().is_some() {
        return Err(hint::trailing(options.ndjson, reader.cursor.offset()).into());
    }
    Ok(())
}
