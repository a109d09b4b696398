//! Reader: combines the cursor, the buffers and the visitor; reads names and strings, and skips values.

use super::cursor::{Cursor, Quoted, Shape};
use super::field::Field;
use super::predicted::Layout;
use super::stop::ReadResult;
use super::strings::{self, Text};
use super::{Options, Scratch};
use super::{number, skip};
use crate::visit::{Visitor, Warning};

/// Reads one document and reports it to a visitor.
pub(super) struct Reader<'a, 's, V> {
    pub cursor: Cursor<'a>,
    pub scratch: &'s mut Scratch,
    pub visitor: &'s mut V,
    /// Encoded member names of previous spans.
    pub layout: Layout<'a>,
    /// Number of open brackets in the attribute value being built.
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
    pub fn field(&mut self, is_first: &mut bool) -> ReadResult<Option<Field>> {
        match self.cursor.member(is_first)? {
            Some(name) => self.field_of(name).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the field of a name, written with or without escapes. `snake_case` is accepted with a warning.
    #[inline]
    pub fn field_of(&mut self, name: Quoted<'a>) -> ReadResult<Field> {
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

    /// Calls `read` with the decoded name of the next member.
    pub fn unescaped_name<T>(
        &mut self,
        name: Quoted<'a>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> ReadResult<T> {
        let mark = self.scratch.arena.len();
        let name = self.text(name)?;
        let result = read(name.bytes(&self.scratch.arena));
        self.scratch.arena.truncate(mark);
        Ok(result)
    }

    /// Returns the decoded content of a string.
    #[inline]
    pub fn text(&mut self, quoted: Quoted<'a>) -> ReadResult<Text<'a>> {
        if quoted.escaped {
            self.unescaped(quoted.raw)
        } else {
            Ok(Text::Body(quoted.raw))
        }
    }

    fn unescaped(&mut self, raw: &[u8]) -> ReadResult<Text<'a>> {
        let start = self.scratch.arena.len();
        match strings::unescape(raw, &mut self.scratch.arena) {
            Ok(false) => {}
            Ok(true) => self.warn(Warning::LoneSurrogate),
            Err(_) => return Err(self.cursor.bad_escape()),
        }
        Ok(Text::Arena(start..self.scratch.arena.len()))
    }

    /// Reads a string field. Null becomes the empty string, a number or boolean its JSON text; a container is skipped.
    #[inline]
    pub fn text_field(&mut self) -> ReadResult<Text<'a>> {
        if self.cursor.peek() == Some(b'"') {
            let quoted = self.cursor.string()?;
            return self.text(quoted);
        }
        self.text_of_another_type()
    }

    #[cold]
    fn text_of_another_type(&mut self) -> ReadResult<Text<'a>> {
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
    pub fn skip(&mut self) -> ReadResult<()> {
        skip::value(&mut self.cursor, &mut self.scratch.nesting)
    }

    /// Skips unknown content that does not belong to a span.
    pub fn unknown(&mut self) -> ReadResult<()> {
        self.visitor.unknown_content();
        self.skip()
    }

    /// Skips a value whose type OTLP does not allow here.
    #[cold]
    pub fn wrong_type(&mut self) -> ReadResult<()> {
        if !self.cursor.null()? {
            self.warn(Warning::FieldType);
            self.skip()?;
        }
        Ok(())
    }

    /// Returns whether an object is next; other values are skipped, with a warning unless null.
    #[inline]
    pub fn opens_object(&mut self) -> ReadResult<bool> {
        self.opens(b'{')
    }

    /// Returns whether a list is next; other values are skipped, with a warning unless null.
    #[inline]
    pub fn opens_list(&mut self) -> ReadResult<bool> {
        self.opens(b'[')
    }

    #[inline]
    fn opens(&mut self, bracket: u8) -> ReadResult<bool> {
        if self.cursor.peek() == Some(bracket) {
            return self.cursor.open().map(|()| true);
        }
        self.wrong_type().map(|()| false)
    }

    /// Skips nulls, with a warning, and returns whether another element follows.
    #[inline]
    pub fn element(&mut self, is_first: &mut bool) -> ReadResult<bool> {
        while self.cursor.element(is_first)? {
            if !self.cursor.null()? {
                return Ok(true);
            }
            self.warn(Warning::NullElement);
        }
        Ok(false)
    }

    /// Returns the number in a string, with a warning unless JSON allows its notation.
    pub fn number_literal<'t>(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        let number = number::from_text(text)?;
        if !number.is_json {
            self.warn(Warning::NumberNotation);
        }
        Some(number.literal)
    }
}

/// Returns the field of a name without escapes, and whether the name is in `snake_case`.
#[inline]
fn known_field(name: &[u8]) -> (Field, bool) {
    match Field::of(name) {
        Field::Unknown => {
            // A linear search, which names of OTLP/JSON never reach.
            let field = Field::of_snake_case(name);
            (field, field != Field::Unknown)
        }
        field => (field, false),
    }
}
