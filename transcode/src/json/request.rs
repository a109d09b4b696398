//! Reader of the envelopes around spans: a request contains resources, a resource scopes, and a scope spans.
//!
//! A resource or scope is reported before its spans. In the usual order that takes one pass. If the spans
//! come first, they are skipped and read in a second pass over the same element. If a resource or scope
//! occurs *again* after its spans were reported, decoding stops ([`Stop::late_owner`]) and restarts with
//! two passes for each element.

use super::cursor::Shape;
use super::field::Field;
use super::reader::Reader;
use super::stop::{ReadResult, Stop};
use super::strings::Text;
use crate::refusal::Refusal;
use crate::visit::{Owner, Visitor, Warning};

/// Role of a member in its envelope.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The resource or scope itself.
    Owner,
    /// The list of scopes or spans in the envelope.
    Content,
    /// The same list under its name before 2022: used if the other list is empty.
    OldContent,
    SchemaUrl,
    Unknown,
}

/// Members that a pass reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// All members; content that comes before its resource or scope is skipped.
    All,
    Content,
    OldContent,
}

/// The part of an element that was already reported.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
enum Progress {
    #[default]
    Nothing,
    /// All or part of its resource or scope.
    Owner,
    /// Everything except its scopes or spans.
    Ready,
}

/// State of an element of an envelope's list.
#[derive(Default)]
struct EnvelopeState<'a> {
    schema_url: Text<'a>,
    progress: Progress,
    postponed: bool,
    old_content: bool,
    content_count: u32,
}

/// An element of `resourceSpans` or of `scopeSpans`.
trait Envelope<'a>: Default {
    /// Path of the list that contains the element.
    const PATH: &'static str;
    fn role(field: Field) -> Role;
    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<()>;
    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> ReadResult<()>;
    fn ready<V: Visitor>(&self, reader: &mut Reader<'a, '_, V>);
    /// Reads the content and returns the number of its elements.
    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<u32>;
    fn end<V: Visitor>(reader: &mut Reader<'a, '_, V>, schema_url: &Text<'a>);
}

#[derive(Default)]
struct ResourceSpans;

impl<'a> Envelope<'a> for ResourceSpans {
    const PATH: &'static str = "resource_spans";

    fn role(field: Field) -> Role {
        match field {
            Field::Resource => Role::Owner,
            Field::ScopeSpans => Role::Content,
            Field::InstrumentationLibrarySpans => Role::OldContent,
            Field::SchemaUrl => Role::SchemaUrl,
            _ => Role::Unknown,
        }
    }

    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<()> {
        Ok(reader.visitor.resource_begin()?)
    }

    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> ReadResult<()> {
        reader.open_envelope(b'{', "resource_spans.resource", "an object")?;
        let mut is_first = true;
        while let Some(field) = reader.field(&mut is_first)? {
            match field {
                Field::Attributes => reader.attributes(Owner::Resource)?,
                Field::DroppedAttributesCount | Field::EntityRefs | Field::SchemaUrl => {
                    reader.skip()?;
                }
                _ => reader.unknown()?,
            }
        }
        Ok(())
    }

    fn ready<V: Visitor>(&self, reader: &mut Reader<'a, '_, V>) {
        reader.visitor.resource_ready();
    }

    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<u32> {
        reader.envelopes(ScopeSpans::PATH, Reader::envelope::<ScopeSpans<'a>>)
    }

    fn end<V: Visitor>(reader: &mut Reader<'a, '_, V>, schema_url: &Text<'a>) {
        reader
            .visitor
            .resource_end(schema_url.bytes(&reader.scratch.arena));
    }
}

#[derive(Default)]
struct ScopeSpans<'a> {
    name: Text<'a>,
    version: Text<'a>,
}

impl<'a> Envelope<'a> for ScopeSpans<'a> {
    const PATH: &'static str = "resource_spans.scope_spans";

    fn role(field: Field) -> Role {
        match field {
            Field::Scope | Field::InstrumentationLibrary => Role::Owner,
            Field::Spans => Role::Content,
            Field::SchemaUrl => Role::SchemaUrl,
            _ => Role::Unknown,
        }
    }

    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<()> {
        Ok(reader.visitor.scope_begin()?)
    }

    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> ReadResult<()> {
        reader.open_envelope(b'{', "resource_spans.scope_spans.scope", "an object")?;
        let mut is_first = true;
        while let Some(field) = reader.field(&mut is_first)? {
            match field {
                Field::Name => self.name = reader.text_field()?,
                Field::Version => self.version = reader.text_field()?,
                Field::Attributes => reader.attributes(Owner::Scope)?,
                Field::DroppedAttributesCount => reader.skip()?,
                _ => reader.unknown()?,
            }
        }
        Ok(())
    }

    fn ready<V: Visitor>(&self, reader: &mut Reader<'a, '_, V>) {
        let arena = &reader.scratch.arena;
        reader
            .visitor
            .scope_ready(self.name.bytes(arena), self.version.bytes(arena));
    }

    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> ReadResult<u32> {
        if !reader.list_opens("resource_spans.scope_spans.spans")? {
            return Ok(0);
        }
        let mut count = 0;
        let mut is_first = true;
        while reader.element(&mut is_first)? {
            count += 1;
            reader.span()?;
        }
        Ok(count)
    }

    fn end<V: Visitor>(reader: &mut Reader<'a, '_, V>, schema_url: &Text<'a>) {
        reader
            .visitor
            .scope_end(schema_url.bytes(&reader.scratch.arena));
    }
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads the document: an `ExportTraceServiceRequest`.
    pub fn request(&mut self) -> ReadResult<()> {
        self.cursor.open()?;
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::ResourceSpans => {
                    self.envelopes(ResourceSpans::PATH, Self::envelope::<ResourceSpans>)?;
                }
                Field::ResourceLogs | Field::ResourceMetrics | Field::ResourceProfiles => {
                    return Err(other_signal(field).into());
                }
                _ => self.unknown()?,
            }
        }
        Ok(())
    }

    /// Reads every element of a list of envelopes. Returns the number of elements.
    fn envelopes(
        &mut self,
        field: &'static str,
        read: fn(&mut Self) -> ReadResult<()>,
    ) -> ReadResult<u32> {
        if !self.list_opens(field)? {
            return Ok(0);
        }
        let mut count = 0;
        let mut is_first = true;
        while self.element(&mut is_first)? {
            count += 1;
            let mark = self.scratch.arena.len();
            read(self)?;
            // Keeps the arena as small as one element, however many elements the body has.
            self.scratch.arena.truncate(mark);
        }
        Ok(count)
    }

    fn list_opens(&mut self, field: &'static str) -> ReadResult<bool> {
        if self.cursor.null()? {
            return Ok(false);
        }
        self.open_envelope(b'[', field, "a list").map(|()| true)
    }

    fn open_envelope(
        &mut self,
        bracket: u8,
        field: &'static str,
        expected: &str,
    ) -> ReadResult<()> {
        if self.cursor.peek() == Some(bracket) {
            return self.cursor.open();
        }
        let actual = match self.cursor.shape()? {
            Shape::Object => "an object",
            Shape::Array => "a list",
            Shape::String => "a string",
            Shape::Number => "a number",
            _ => "a boolean",
        };
        Err(Refusal::malformed(field, format!("{actual}; expected {expected}")).into())
    }

    fn envelope<E: Envelope<'a>>(&mut self) -> ReadResult<()> {
        let (mut envelope, mut state) = (E::default(), EnvelopeState::default());
        E::begin(self)?;
        let start = self.cursor.position();
        self.pass(Pass::All, &mut envelope, &mut state)?;
        // An element without a resource or scope is reported with an empty one.
        self.ready(&envelope, &mut state);
        // The content came before its resource or scope and was skipped: read it now.
        if state.postponed {
            self.cursor.return_to(start);
            self.pass(Pass::Content, &mut envelope, &mut state)?;
        }
        // Some senders put the same spans into both lists, so the old list counts only if the new list is
        // empty.
        if state.old_content && state.content_count == 0 {
            self.cursor.return_to(start);
            self.pass(Pass::OldContent, &mut envelope, &mut state)?;
        }
        E::end(self, &state.schema_url);
        Ok(())
    }

    fn ready<E: Envelope<'a>>(&mut self, envelope: &E, state: &mut EnvelopeState<'a>) {
        if state.progress < Progress::Ready {
            state.progress = Progress::Ready;
            envelope.ready(self);
        }
    }

    fn pass<E: Envelope<'a>>(
        &mut self,
        pass: Pass,
        envelope: &mut E,
        state: &mut EnvelopeState<'a>,
    ) -> ReadResult<()> {
        self.open_envelope(b'{', E::PATH, "an object")?;
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            let role = E::role(field);
            match (pass, role) {
                (Pass::All, _) => self.member(role, field, envelope, state)?,
                (Pass::Content, Role::Content) | (Pass::OldContent, Role::OldContent) => {
                    state.content_count += E::content(self)?;
                }
                _ => self.skip()?,
            }
        }
        Ok(())
    }

    /// Reads a member in the first pass.
    fn member<E: Envelope<'a>>(
        &mut self,
        role: Role,
        field: Field,
        envelope: &mut E,
        state: &mut EnvelopeState<'a>,
    ) -> ReadResult<()> {
        match role {
            Role::Owner => self.owner(field, envelope, state),
            Role::SchemaUrl => self.text_field().map(|url| state.schema_url = url),
            Role::Content if state.progress >= Progress::Owner && !self.is_two_pass => {
                // If another part of the owner follows all the same, `owner` stops and decoding restarts.
                self.ready(envelope, state);
                E::content(self).map(|count| state.content_count += count)
            }
            Role::Content => {
                state.postponed = true;
                self.skip()
            }
            Role::OldContent => {
                // Not read yet: the new list may follow, and then it alone counts.
                state.old_content = true;
                self.warn(Warning::InstrumentationLibrary);
                self.skip()
            }
            Role::Unknown => self.unknown(),
        }
    }

    fn owner<E: Envelope<'a>>(
        &mut self,
        field: Field,
        envelope: &mut E,
        state: &mut EnvelopeState<'a>,
    ) -> ReadResult<()> {
        if self.cursor.null()? {
            return Ok(());
        }
        // Rows of this element may exist already and cannot be changed any more.
        if state.progress == Progress::Ready {
            return Err(Stop::late_owner());
        }
        if field == Field::InstrumentationLibrary {
            self.warn(Warning::InstrumentationLibrary);
        }
        state.progress = Progress::Owner;
        envelope.owner(self)
    }
}

#[cold]
fn other_signal(field: Field) -> Refusal {
    let (name, path) = match field {
        Field::ResourceLogs => ("resource_logs", "logs"),
        Field::ResourceMetrics => ("resource_metrics", "metrics"),
        _ => ("resource_profiles", "profiles"),
    };
    Refusal::malformed(
        name,
        format!("a request with {path}; expected resourceSpans; this endpoint takes traces only"),
    )
}
