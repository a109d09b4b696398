//! Envelopes: a request holds resources, a resource scopes, a scope spans.
//!
//! Resource and scope are reported before their spans. In the usual order that takes one pass. If the spans
//! come first, they are skipped and read in a second pass over the same element. If a resource or scope
//! occurs *again* after its spans were reported, decoding stops ([`Stop::late_owner`]) and restarts with
//! two passes for each element.

use super::cursor::Shape;
use super::field::Field;
use super::reader::Reader;
use super::stop::{Outcome, Stop};
use super::strings::Text;
use crate::refusal::Refusal;
use crate::visit::{Owner, Visitor, Warning};

/// Role of a member in its envelope.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The resource or scope itself.
    Owner,
    /// The list of the envelope's content.
    Content,
    /// The same list under its name before 2022: used if the other list is empty.
    OldContent,
    SchemaUrl,
    Unknown,
}

/// Members that a pass reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// All members, but no content before the owner.
    All,
    Content,
    OldContent,
}

/// How much of an element was reported.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
enum Progress {
    #[default]
    Nothing,
    /// Its resource or scope, perhaps in part.
    Owner,
    /// Everything but its content.
    Ready,
}

/// State of an element of an envelope's list.
#[derive(Default)]
struct Seen<'a> {
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
    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<()>;
    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> Outcome<()>;
    fn ready<V: Visitor>(&self, reader: &mut Reader<'a, '_, V>);
    /// Reads the content and returns the number of its elements.
    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<u32>;
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

    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<()> {
        Ok(reader.visitor.resource_begin()?)
    }

    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> Outcome<()> {
        reader.open_envelope(b'{', "resource_spans.resource", "an object")?;
        let mut fresh = true;
        while let Some(field) = reader.field(&mut fresh)? {
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

    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<u32> {
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

    fn begin<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<()> {
        Ok(reader.visitor.scope_begin()?)
    }

    fn owner<V: Visitor>(&mut self, reader: &mut Reader<'a, '_, V>) -> Outcome<()> {
        reader.open_envelope(b'{', "resource_spans.scope_spans.scope", "an object")?;
        let mut fresh = true;
        while let Some(field) = reader.field(&mut fresh)? {
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

    fn content<V: Visitor>(reader: &mut Reader<'a, '_, V>) -> Outcome<u32> {
        if !reader.list_opens("resource_spans.scope_spans.spans")? {
            return Ok(0);
        }
        let mut count = 0;
        let mut fresh = true;
        while reader.element(&mut fresh)? {
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
    pub fn request(&mut self) -> Outcome<()> {
        self.cursor.open()?;
        let mut fresh = true;
        while let Some(field) = self.field(&mut fresh)? {
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

    /// Reads every element of a list of envelopes. Returns how many there were.
    fn envelopes(
        &mut self,
        field: &'static str,
        read: fn(&mut Self) -> Outcome<()>,
    ) -> Outcome<u32> {
        if !self.list_opens(field)? {
            return Ok(0);
        }
        let mut count = 0;
        let mut fresh = true;
        while self.element(&mut fresh)? {
            count += 1;
            let mark = self.scratch.arena.len();
            read(self)?;
            self.scratch.arena.truncate(mark);
        }
        Ok(count)
    }

    fn list_opens(&mut self, field: &'static str) -> Outcome<bool> {
        if self.cursor.null()? {
            return Ok(false);
        }
        self.open_envelope(b'[', field, "a list").map(|()| true)
    }

    fn open_envelope(&mut self, bracket: u8, field: &'static str, expected: &str) -> Outcome<()> {
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

    fn envelope<E: Envelope<'a>>(&mut self) -> Outcome<()> {
        let (mut envelope, mut seen) = (E::default(), Seen::default());
        E::begin(self)?;
        let start = self.cursor.place();
        self.pass(Pass::All, &mut envelope, &mut seen)?;
        self.ready(&envelope, &mut seen);
        if seen.postponed {
            self.cursor.return_to(start);
            self.pass(Pass::Content, &mut envelope, &mut seen)?;
        }
        if seen.old_content && seen.content_count == 0 {
            self.cursor.return_to(start);
            self.pass(Pass::OldContent, &mut envelope, &mut seen)?;
        }
        E::end(self, &seen.schema_url);
        Ok(())
    }

    fn ready<E: Envelope<'a>>(&mut self, envelope: &E, seen: &mut Seen<'a>) {
        if seen.progress < Progress::Ready {
            seen.progress = Progress::Ready;
            envelope.ready(self);
        }
    }

    fn pass<E: Envelope<'a>>(
        &mut self,
        pass: Pass,
        envelope: &mut E,
        seen: &mut Seen<'a>,
    ) -> Outcome<()> {
        self.open_envelope(b'{', E::PATH, "an object")?;
        let mut fresh = true;
        while let Some(field) = self.field(&mut fresh)? {
            let role = E::role(field);
            match (pass, role) {
                (Pass::All, _) => self.member(role, field, envelope, seen)?,
                (Pass::Content, Role::Content) | (Pass::OldContent, Role::OldContent) => {
                    seen.content_count += E::content(self)?;
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
        seen: &mut Seen<'a>,
    ) -> Outcome<()> {
        match role {
            Role::Owner => self.owner(field, envelope, seen),
            Role::SchemaUrl => self.text_field().map(|url| seen.schema_url = url),
            Role::Content if seen.progress >= Progress::Owner && !self.is_two_pass => {
                self.ready(envelope, seen);
                E::content(self).map(|count| seen.content_count += count)
            }
            Role::Content => {
                seen.postponed = true;
                self.skip()
            }
            Role::OldContent => {
                seen.old_content = true;
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
        seen: &mut Seen<'a>,
    ) -> Outcome<()> {
        if self.cursor.null()? {
            return Ok(());
        }
        if seen.progress == Progress::Ready {
            return Err(Stop::late_owner());
        }
        if field == Field::InstrumentationLibrary {
            self.warn(Warning::InstrumentationLibrary);
        }
        seen.progress = Progress::Owner;
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
