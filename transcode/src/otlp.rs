//! Protobuf decoder: reports one request body to a [`Visitor`], field by field.
//!
//! Works on borrowed bytes and never builds a message. Repeated occurrences of a singular field are merged
//! as protobuf requires: the last scalar wins, messages are combined.
//!
//! Invariant: the visitor can refuse a delivery before memory grows. A resource or scope is reported before its spans,
//! whatever its position in the message: each message is read twice, and the first pass skips the spans by
//! their lengths.

mod fields;
mod hints;
mod span;
mod value;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::visit::{Owner, Visitor, Warning};
use crate::wire::{Cursor, WireError};
use hints::MetricsDetector;
use value::Writer;

/// Decodes one `ExportTraceServiceRequest`.
///
/// # Errors
/// If the body is not an `ExportTraceServiceRequest`, or the visitor refuses it.
pub fn decode<V: Visitor>(body: &[u8], limits: &Limits, visitor: &mut V) -> Result<(), Refusal> {
    let mut decoder = Decoder {
        limits,
        visitor,
        writer: Writer::default(),
        metrics: MetricsDetector::default(),
    };
    match decoder.request(body) {
        // A metrics request can be valid protobuf for spans without valid ids: only the end shows it.
        Ok(()) => decoder.metrics.verdict(),
        Err(Stop::Malformed(error)) => Err(hints::refusal(&error, body)),
        Err(Stop::Refused(refusal)) => Err(*refusal),
    }
}

/// The reason to stop decoding early.
enum Stop {
    /// The bytes are not valid protobuf, or not the expected message.
    Malformed(WireError),
    /// The visitor refused the delivery.
    Refused(Box<Refusal>),
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

impl From<Refusal> for Stop {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

struct Decoder<'a, 'v, V> {
    limits: &'v Limits,
    visitor: &'v mut V,
    writer: Writer<'a>,
    metrics: MetricsDetector,
}

/// Result of the first pass over a resource or scope, before its spans are read.
#[derive(Default)]
struct Head<'a> {
    name: &'a [u8],
    version: &'a [u8],
    schema_url: &'a [u8],
    child_count: u32,
    has_instrumentation_library: bool,
}

impl<'a, V: Visitor> Decoder<'a, '_, V> {
    fn request(&mut self, body: &'a [u8]) -> Result<(), Stop> {
        let mut fields = Cursor::new(body, &fields::REQUEST);
        while let Some(tag) = fields.tag()? {
            match tag {
                fields::RESOURCE_SPANS => self.resource_spans(fields.bytes()?)?,
                _ => self.skip(&mut fields, tag)?,
            }
        }
        Ok(())
    }

    fn resource_spans(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::resource_spans::{INSTRUMENTATION_LIBRARY_SPANS, MESSAGE, SCOPE_SPANS};
        self.visitor.resource_begin()?;
        let head = self.resource_head(message)?;
        self.visitor.resource_ready();
        // Some senders put the same spans into both lists, so the old list counts only if the new list is
        // empty.
        let is_old = head.child_count == 0 && head.has_instrumentation_library;
        if head.has_instrumentation_library {
            self.visitor.warn(Warning::InstrumentationLibrary);
        }
        let mut fields = Cursor::new(message, &MESSAGE);
        let wanted = if is_old {
            INSTRUMENTATION_LIBRARY_SPANS
        } else {
            SCOPE_SPANS
        };
        while let Some(scope_spans) = fields.find(wanted)? {
            self.scope_spans(scope_spans)?;
        }
        self.visitor.resource_end(head.schema_url);
        Ok(())
    }

    /// Reads all fields of a resource message except its spans.
    fn resource_head(&mut self, message: &'a [u8]) -> Result<Head<'a>, Stop> {
        use fields::resource_spans as field;
        let mut head = Head::default();
        let mut fields = Cursor::new(message, &field::MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                field::RESOURCE => self.resource(fields.bytes()?)?,
                field::SCHEMA_URL => head.schema_url = fields.bytes()?,
                field::INSTRUMENTATION_LIBRARY_SPANS => {
                    fields.bytes()?;
                    head.has_instrumentation_library = true;
                }
                field::SCOPE_SPANS => {
                    fields.bytes()?;
                    head.child_count += 1;
                }
                _ => self.skip(&mut fields, tag)?,
            }
            if head.child_count > self.limits.scopes_max {
                // The visitor will refuse the scopes, so the rest is not needed.
                break;
            }
        }
        Ok(head)
    }

    fn resource(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::resource::{ATTRIBUTES, MESSAGE};
        let mut fields = Cursor::new(message, &MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                ATTRIBUTES => self.attribute(Owner::Resource, fields.bytes()?)?,
                _ => self.skip(&mut fields, tag)?,
            }
        }
        Ok(())
    }

    fn scope_spans(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::scope_spans::{MESSAGE, SPANS};
        self.visitor.scope_begin()?;
        let head = self.scope_head(message)?;
        self.visitor.scope_ready(head.name, head.version);
        let mut fields = Cursor::new(message, &MESSAGE);
        while let Some(span) = fields.find(SPANS)? {
            self.span(span)?;
        }
        self.visitor.scope_end(head.schema_url);
        Ok(())
    }

    /// Reads all fields of a scope message except its spans.
    fn scope_head(&mut self, message: &'a [u8]) -> Result<Head<'a>, Stop> {
        use fields::scope_spans as field;
        let mut head = Head::default();
        let mut fields = Cursor::new(message, &field::MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                field::SPANS => {
                    fields.bytes()?;
                    head.child_count += 1;
                    if head.child_count > self.limits.spans_max {
                        // The visitor will refuse the spans, so the rest is not needed.
                        break;
                    }
                }
                field::SCOPE => self.scope(fields.bytes()?, &mut head)?,
                field::SCHEMA_URL => head.schema_url = fields.bytes()?,
                _ => self.skip(&mut fields, tag)?,
            }
        }
        Ok(head)
    }

    fn scope(&mut self, message: &'a [u8], head: &mut Head<'a>) -> Result<(), Stop> {
        use fields::scope::{ATTRIBUTES, MESSAGE, NAME, VERSION};
        let mut fields = Cursor::new(message, &MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                NAME => head.name = fields.bytes()?,
                VERSION => head.version = fields.bytes()?,
                ATTRIBUTES => self.attribute(Owner::Scope, fields.bytes()?)?,
                _ => self.skip(&mut fields, tag)?,
            }
        }
        Ok(())
    }

    /// Skips a field outside spans, and reports it if the schema does not have it.
    #[cold]
    fn skip(&mut self, fields: &mut Cursor<'a>, tag: u32) -> Result<(), Stop> {
        if !fields.skip(tag)? {
            self.visitor.unknown_content();
        }
        Ok(())
    }
}
