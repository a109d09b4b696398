//! Decoder of a span with its events and links.

use super::field::Field;
use super::reader::Reader;
use super::stop::ReadResult;
use super::strings::Text;
use crate::identity;
use crate::visit::{Owner, Rejection, Span, Visitor, Warning};

/// The fields of a span while it is read; strings may still be in the arena.
struct Fields<'a> {
    /// All fields except the strings.
    numbers: Span<'static>,
    trace_state: Text<'a>,
    name: Text<'a>,
    status_message: Text<'a>,
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads one element of `spans`.
    pub fn span(&mut self) -> ReadResult<()> {
        self.visitor.span_begin()?;
        let mark = self.scratch.arena.len();
        let mut fields = Fields {
            numbers: Span::default(),
            trace_state: Text::default(),
            name: Text::default(),
            status_message: Text::default(),
        };
        if self.cursor.peek() == Some(b'{') {
            self.cursor.open()?;
            let mut before = None;
            while let Some(field) = self.span_member(before)? {
                self.span_field(field, &mut fields)?;
                before = Some(field);
            }
        } else {
            self.skip()?;
            // One invalid element rejects one span and not the delivery.
            fields.numbers.trace_id = Err(Rejection::SpanNotObject);
        }
        let arena = &self.scratch.arena;
        self.visitor.span_end(&Span {
            trace_state: fields.trace_state.bytes(arena),
            name: fields.name.bytes(arena),
            status_message: fields.status_message.bytes(arena),
            ..fields.numbers
        });
        self.scratch.arena.truncate(mark);
        Ok(())
    }

    fn span_field(&mut self, field: Field, fields: &mut Fields<'a>) -> ReadResult<()> {
        let numbers = &mut fields.numbers;
        match field {
            Field::TraceId => numbers.trace_id = self.trace_id()?,
            Field::SpanId => numbers.span_id = self.span_id()?,
            Field::ParentSpanId => numbers.parent_span_id = self.parent_span_id()?,
            Field::TraceState => fields.trace_state = self.text_field()?,
            Field::Name => fields.name = self.text_field()?,
            Field::Kind => numbers.kind = self.kind()?,
            Field::StartTimeUnixNano => numbers.start_unix_nano = self.time()?,
            Field::EndTimeUnixNano => numbers.end_unix_nano = self.time()?,
            Field::Flags => numbers.flags = self.count()?,
            Field::DroppedAttributesCount => numbers.dropped_attributes_count = self.count()?,
            Field::DroppedEventsCount => numbers.dropped_events_count = self.count()?,
            Field::DroppedLinksCount => numbers.dropped_links_count = self.count()?,
            Field::Attributes => self.attributes(Owner::Span)?,
            Field::Events => self.for_each_object(Self::event)?,
            Field::Links => self.for_each_object(Self::link)?,
            Field::Status => self.status(fields)?,
            _ => self.skip()?,
        }
        Ok(())
    }

    fn status(&mut self, fields: &mut Fields<'a>) -> ReadResult<()> {
        if let Some(code) = self.cursor.predicted_status() {
            fields.numbers.status_code = code;
            return Ok(());
        }
        if self.cursor.null()? {
            // Members may repeat, and the last one counts: a null resets an earlier status.
            fields.numbers.status_code = 0;
            fields.status_message = Text::default();
            return Ok(());
        }
        if self.cursor.peek() != Some(b'{') {
            // Some senders write the code without the object around it.
            self.warn(Warning::FieldType);
            fields.numbers.status_code = self.status_code()?;
            return Ok(());
        }
        self.cursor.open()?;
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::Code => fields.numbers.status_code = self.status_code()?,
                Field::Message => fields.status_message = self.text_field()?,
                _ => self.skip()?,
            }
        }
        Ok(())
    }

    /// Reads every object of a list; other elements are skipped with a warning.
    fn for_each_object(&mut self, read: fn(&mut Self) -> ReadResult<()>) -> ReadResult<()> {
        if self.cursor.predicted_empty_list() || !self.opens_list()? {
            return Ok(());
        }
        let mut is_first = true;
        while self.element(&mut is_first)? {
            if self.opens_object()? {
                let mark = self.scratch.arena.len();
                read(self)?;
                self.scratch.arena.truncate(mark);
            }
        }
        Ok(())
    }

    fn event(&mut self) -> ReadResult<()> {
        self.visitor.event_begin();
        let (mut time, mut name) = (0, Text::default());
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::TimeUnixNano => time = self.time()?,
                Field::Name => name = self.text_field()?,
                Field::Attributes => self.attributes(Owner::Event)?,
                _ => self.skip()?,
            }
        }
        self.visitor
            .event_end(time, name.bytes(&self.scratch.arena));
        Ok(())
    }

    fn link(&mut self) -> ReadResult<()> {
        self.visitor.link_begin();
        let Span {
            mut trace_id,
            mut span_id,
            ..
        } = Span::default();
        let mut trace_state = Text::default();
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::TraceId => trace_id = self.trace_id()?,
                Field::SpanId => span_id = self.span_id()?,
                Field::TraceState => trace_state = self.text_field()?,
                Field::Attributes => self.attributes(Owner::Link)?,
                _ => self.skip()?,
            }
        }
        let ids = trace_id.ok().zip(span_id.ok());
        self.visitor
            .link_end(ids, trace_state.bytes(&self.scratch.arena));
        Ok(())
    }

    fn trace_id(&mut self) -> ReadResult<Result<[u8; 16], Rejection>> {
        if let Some(id) = self.cursor.predicted_trace_id() {
            return Ok(Ok(id));
        }
        let text = self.id_text()?;
        let warn = &mut |warning| self.visitor.warn(warning);
        Ok(text.map_or(Err(Rejection::TraceIdMalformed), |text| {
            identity::trace_id_from_text(text.bytes(&self.scratch.arena), warn)
        }))
    }

    fn span_id(&mut self) -> ReadResult<Result<[u8; 8], Rejection>> {
        if let Some(id) = self.cursor.predicted_span_id() {
            return Ok(Ok(id));
        }
        let text = self.id_text()?;
        let warn = &mut |warning| self.visitor.warn(warning);
        Ok(text.map_or(Err(Rejection::SpanIdMalformed), |text| {
            identity::span_id_from_text(text.bytes(&self.scratch.arena), warn)
        }))
    }

    fn parent_span_id(&mut self) -> ReadResult<Option<[u8; 8]>> {
        if let Some(id) = self.cursor.predicted_span_id() {
            return Ok(Some(id));
        }
        let Some(text) = self.id_text()? else {
            self.warn(Warning::ParentDropped);
            return Ok(None);
        };
        let warn = &mut |warning| self.visitor.warn(warning);
        Ok(identity::parent_from_text(
            text.bytes(&self.scratch.arena),
            warn,
        ))
    }

    /// Reads the text of an id, empty for null; `None` for a value of another type.
    #[inline]
    fn id_text(&mut self) -> ReadResult<Option<Text<'a>>> {
        match self.cursor.peek() {
            Some(b'"' | b'n') => self.text_field().map(Some),
            _ => self.skip().map(|()| None),
        }
    }
}
