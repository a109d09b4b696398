//! What reads: a cursor, the buffers, the listener; and how it reads names, texts and what to skip.

use super::cursor::{Cursor, Quoted, Shape};
use super::field::Field;
use super::predicted::Layout;
use super::stop::Outcome;
use super::strings::{self, Text};
use super::{Manner, Scratch};
use super::{number, skip};
use crate::visit::{Visitor, Warning};

/// Tells a visitor the story of one document.
pub(super) struct Reader<'a, 's, V> {
    pub cursor: Cursor<'a>,
    pub scratch: &'s mut Scratch,
    pub visitor: &'s mut V,
    /// How the span before was spelled.
    pub layout: Layout<'a>,
    /// Brackets open in the attribute value being rendered.
    pub value_depth: u32,
    pub value_depth_max: u32,
    /// Whether every resource and scope is read before its spans, at the price of two passes.
    pub is_careful: bool,
}

impl<'a, 's, V: Visitor> Reader<'a, 's, V> {
    pub fn new(
        cursor: Cursor<'a>,
        manner: Manner<'_>,
        scratch: &'s mut Scratch,
        visitor: &'s mut V,
    ) -> Self {
        Self {
            cursor,
            scratch,
            visitor,
            layout: Layout::default(),
            value_depth: 0,
            value_depth_max: manner.limits.value_depth_max,
            is_careful: manner.is_careful,
        }
    }

    #[inline]
    pub fn warn(&mut self, warning: Warning) {
        self.visitor.warn(warning);
    }

    /// The next member's field; `None` behind the object.
    #[inline]
    pub fn field(&mut self, fresh: &mut bool) -> Outcome<Option<Field>> {
        match self.cursor.member(fresh)? {
            Some(name) => self.field_of(name).map(Some),
            None => Ok(None),
        }
    }

    /// The field that a name means, spelled with or without escapes. `snake_case` is read with a warning.
    #[inline]
    pub fn field_of(&mut self, name: Quoted<'a>) -> Outcome<Field> {
        let (field, is_snake_case) = if name.escaped {
            self.unescaped_name(name, known_field)?
        } else {
            known_field(name.raw)
        };
        if is_snake_case {
            self.warn(Warning::SnakeCaseKeys);
        }
        Ok(field)
    }

    /// Calls `read` with a member's name, without its escapes.
    pub fn unescaped_name<T>(
        &mut self,
        name: Quoted<'a>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Outcome<T> {
        let mark = self.scratch.arena.len();
        let name = self.text(name)?;
        let found = read(name.bytes(&self.scratch.arena));
        self.scratch.arena.truncate(mark);
        Ok(found)
    }

    /// What a string says, its escapes undone.
    #[inline]
    pub fn text(&mut self, quoted: Quoted<'a>) -> Outcome<Text<'a>> {
        if quoted.escaped {
            self.unescaped(quoted.raw)
        } else {
            Ok(Text::Body(quoted.raw))
        }
    }

    fn unescaped(&mut self, raw: &[u8]) -> Outcome<Text<'a>> {
        let start = self.scratch.arena.len();
        match strings::unescape(raw, &mut self.scratch.arena) {
            Ok(false) => {}
            Ok(true) => self.warn(Warning::LoneSurrogate),
            Err(_) => return Err(self.cursor.bad_escape()),
        }
        Ok(Text::Arena(start..self.scratch.arena.len()))
    }

    /// A text field: null is empty, a number or boolean what it looks like, a container nothing.
    #[inline]
    pub fn text_field(&mut self) -> Outcome<Text<'a>> {
        if self.cursor.peek() == Some(b'"') {
            let quoted = self.cursor.string()?;
            return self.text(quoted);
        }
        self.text_of_another_type()
    }

    #[cold]
    fn text_of_another_type(&mut self) -> Outcome<Text<'a>> {
        let text: &'a [u8] = match self.cursor.shape()? {
            Shape::Null => return self.cursor.word("null").map(|()| Text::default()),
            Shape::Number => self.cursor.number()?,
            Shape::True => self.cursor.word("true").map(|()| b"true")?,
            Shape::False => self.cursor.word("false").map(|()| b"false")?,
            _ => self.skip().map(|()| b"")?,
        };
        self.warn(Warning::FieldType);
        Ok(Text::Body(text))
    }

    /// Passes over the next value.
    #[inline]
    pub fn skip(&mut self) -> Outcome<()> {
        skip::value(&mut self.cursor, &mut self.scratch.nesting)
    }

    /// Passes over content that means nothing to us and belongs to no span.
    pub fn unknown(&mut self) -> Outcome<()> {
        self.visitor.unknown_content();
        self.skip()
    }

    /// Passes over a value of another type than OTLP says.
    #[cold]
    pub fn wrong_type(&mut self) -> Outcome<()> {
        if !self.cursor.null()? {
            self.warn(Warning::FieldType);
            self.skip()?;
        }
        Ok(())
    }

    /// Whether an object opens here; what else stands here is passed over with a warning, null without.
    #[inline]
    pub fn opens_object(&mut self) -> Outcome<bool> {
        self.opens(b'{')
    }

    /// Whether a list opens here; what else stands here is passed over with a warning, null without.
    #[inline]
    pub fn opens_list(&mut self) -> Outcome<bool> {
        self.opens(b'[')
    }

    #[inline]
    fn opens(&mut self, bracket: u8) -> Outcome<bool> {
        if self.cursor.peek() == Some(bracket) {
            return self.cursor.open().map(|()| true);
        }
        self.wrong_type().map(|()| false)
    }

    /// Whether another element follows that is not null: nulls are passed over with a warning.
    #[inline]
    pub fn element(&mut self, fresh: &mut bool) -> Outcome<bool> {
        while self.cursor.element(fresh)? {
            if !self.cursor.null()? {
                return Ok(true);
            }
            self.warn(Warning::NullElement);
        }
        Ok(false)
    }

    /// The number that a text spells, with a warning unless JSON would spell it so.
    pub fn spelled<'t>(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        let spelled = number::spelled(text)?;
        if !spelled.is_json {
            self.warn(Warning::NumberSpelling);
        }
        Some(spelled.literal)
    }
}

/// The field of a name without escapes, and whether the name is in `snake_case`.
#[inline]
fn known_field(name: &[u8]) -> (Field, bool) {
    match Field::of(name) {
        Field::Unknown => {
            let field = Field::of_snake_case(name);
            (field, field != Field::Unknown)
        }
        field => (field, false),
    }
}
