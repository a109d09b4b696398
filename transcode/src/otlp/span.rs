//! Decoder of one span: fields in any order; attributes, events and links are reported as they occur.

use super::fields;
use super::{Decoder, Stop};
use crate::identity;
use crate::visit::{Owner, Span, Visitor};
use crate::wire::{Cursor, WireError};

/// The ids of a span as sent, collected until all fields are read.
#[derive(Default)]
struct Ids<'a> {
    trace: &'a [u8],
    span: &'a [u8],
    parent: &'a [u8],
}

impl<'a, V: Visitor> Decoder<'a, '_, V> {
    pub(super) fn span(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::span as field;
        self.visitor.span_begin()?;
        let (mut span, mut ids) = (Span::default(), Ids::default());
        let mut fields = Cursor::new(message, &field::MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                field::TRACE_ID => ids.trace = fields.bytes()?,
                field::SPAN_ID => ids.span = fields.bytes()?,
                field::TRACE_STATE => span.trace_state = fields.bytes()?,
                field::PARENT_SPAN_ID => ids.parent = fields.bytes()?,
                field::NAME => span.name = fields.bytes()?,
                field::KIND => span.kind = fields.int32()?,
                field::START_TIME_UNIX_NANO => span.start_unix_nano = fields.fixed64()?,
                field::END_TIME_UNIX_NANO => span.end_unix_nano = fields.fixed64()?,
                field::ATTRIBUTES => self.span_attribute(fields.bytes()?)?,
                field::DROPPED_ATTRIBUTES_COUNT => {
                    span.dropped_attributes_count = fields.uint32()?;
                }
                field::EVENTS => self.event(fields.bytes()?)?,
                field::DROPPED_EVENTS_COUNT => span.dropped_events_count = fields.uint32()?,
                field::LINKS => self.link(fields.bytes()?)?,
                field::DROPPED_LINKS_COUNT => span.dropped_links_count = fields.uint32()?,
                field::STATUS => status(fields.bytes()?, &mut span)?,
                field::FLAGS => span.flags = fields.fixed32()?,
                _ => drop(fields.skip(tag)?),
            }
        }
        // The ids are validated only here, because the last occurrence of a field counts.
        self.set_ids(&mut span, &ids);
        self.visitor.span_end(&span);
        Ok(())
    }

    fn set_ids(&mut self, span: &mut Span<'a>, ids: &Ids<'a>) {
        let mut warn = |warning| self.visitor.warn(warning);
        span.trace_id = identity::trace_id_from_bytes(ids.trace, &mut warn);
        span.span_id = identity::span_id_from_bytes(ids.span, &mut warn);
        span.parent_span_id = identity::parent_from_bytes(ids.parent, &mut warn);
        self.metrics.note(span, ids.trace);
    }

    fn event(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::event::{ATTRIBUTES, MESSAGE, NAME, TIME_UNIX_NANO};
        self.visitor.event_begin();
        let (mut time_unix_nano, mut name) = (0, &b""[..]);
        let mut fields = Cursor::new(message, &MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                TIME_UNIX_NANO => time_unix_nano = fields.fixed64()?,
                NAME => name = fields.bytes()?,
                ATTRIBUTES => self.attribute(Owner::Event, fields.bytes()?)?,
                _ => drop(fields.skip(tag)?),
            }
        }
        self.visitor.event_end(time_unix_nano, name);
        Ok(())
    }

    fn link(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        use fields::link::{ATTRIBUTES, MESSAGE, SPAN_ID, TRACE_ID, TRACE_STATE};
        self.visitor.link_begin();
        let (mut ids, mut trace_state) = (Ids::default(), &b""[..]);
        let mut fields = Cursor::new(message, &MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                TRACE_ID => ids.trace = fields.bytes()?,
                SPAN_ID => ids.span = fields.bytes()?,
                TRACE_STATE => trace_state = fields.bytes()?,
                ATTRIBUTES => self.attribute(Owner::Link, fields.bytes()?)?,
                _ => drop(fields.skip(tag)?),
            }
        }
        let mut warn = |warning| self.visitor.warn(warning);
        let trace_id = identity::trace_id_from_bytes(ids.trace, &mut warn).ok();
        let span_id = identity::span_id_from_bytes(ids.span, &mut warn).ok();
        self.visitor.link_end(trace_id.zip(span_id), trace_state);
        Ok(())
    }
}

fn status<'a>(message: &'a [u8], span: &mut Span<'a>) -> Result<(), WireError> {
    use fields::status::{CODE, MESSAGE, MESSAGE_TEXT};
    let mut fields = Cursor::new(message, &MESSAGE);
    while let Some(tag) = fields.tag()? {
        match tag {
            MESSAGE_TEXT => span.status_message = fields.bytes()?,
            CODE => span.status_code = fields.int32()?,
            _ => drop(fields.skip(tag)?),
        }
    }
    Ok(())
}
