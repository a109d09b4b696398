//! Reader: a cursor, the buffers and the visitor; reads names and texts, and skips values.

use super::cursor::{Cursor, Quoted, Shape};
use super::field::Field;
use super::predicted::Layout;
use super::stop::Outcome;
use super::strings::{self, Text};
use super::{Options, Scratch};
use super::{number, skip};
use crate::visit::{Visitor, Warning};

/// Reports one document to a visitor.
pub(super) struct Reader<'a, 's, V> {
    pub cursor: Cursor<'a>,
    pub scratch: &'s mut Scratch,
    pub visitor: &'s mut V,
    /// Spelling of the member names in previous spans.
    pub layout: Layout<'a>,
    /// Brackets open in the attribute value under construction.
    pub value_depth: u32,
    pub value_depth_max: u32,
    /// Whether every resource and scope is read before its spans, in a separate pass.
    pub is_two_pass: bool,
}

impl<'a, 's, V: Visitor> Reader<'a, 's, V> {
    pub fn new(
        cursor: Cursor<'a>,
        options: Options<'_>,
        scratch: &'s mut Scratch,
        visitor: &'s mut V,
    ) -> Self {
        Self {
            cursor,
            scratch,
            visitor,
            layout: Layout::default(),
            value_depth: 0,
            value_depth_max: options.limits.value_depth_max,
            is_two_pass: options.is_two_pass,
        }
    }

    #[inline]
    pub fn warn(&mut self, warning: Warning) {
        self.visitor.warn(warning);
    }

    /// Returns the next member's field; `None` after the end of the object.
    #[inline]
    pub fn field(&mut self, fresh: &mut bool) -> Outcome<Option<Field>> {
        match self.cursor.member(fresh)? {
            Some(name) => self.field_of(name).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the field of a name, spelled with or without escapes. `snake_case` is accepted with a warning.
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

    /// Calls `read` with a member's name, its escapes decoded.
    pub fn unescaped_name<T>(
        &mut self,
        name: Quoted<'a>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Outcome<T> {
        let mark = self.scratch.arena.len();
        let name = self.text(name)?;
        let result = read(name.bytes(&self.scratch.arena));
        self.scratch.arena.truncate(mark);
        Ok(result)
    }

    /// Returns the content of a string, its escapes decoded.
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

    /// Reads a text field: null is empty, a number or boolean becomes its text, a container is skipped.
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

    /// Skips the next value.
    #[inline]
    pub fn skip(&mut self) -> Outcome<()> {
        skip::value(&mut self.cursor, &mut self.scratch.nesting)
    }

    /// Skips unknown content that does not belong to a span.
    pub fn unknown(&mut self) -> Outcome<()> {
        self.visitor.unknown_content();
        self.skip()
    }

    /// Skips a value whose type OTLP does not allow here.
    #[cold]
    pub fn wrong_type(&mut self) -> Outcome<()> {
        if !self.cursor.null()? {
            self.warn(Warning::FieldType);
            self.skip()?;
        }
        Ok(())
    }

    /// Returns whether an object is next; other values are skipped, with a warning unless null.
    #[inline]
    pub fn opens_object(&mut self) -> Outcome<bool> {
        self.opens(b'{')
    }

    /// Returns whether a list is next; other values are skipped, with a warning unless null.
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

    /// Returns whether another element follows that is not null: nulls are skipped with a warning.
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

    /// Returns the number in a text, with a warning unless JSON allows its spelling.
    pub fn spelled<'t>(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        let spelled = number::spelled(text)?;
        if !spelled.is_json {
            self.warn(Warning::NumberSpelling);
        }
        Some(spelled.literal)
    }
}

/// Returns the field of a name without escapes, and whether the name is in `snake_case`.
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
