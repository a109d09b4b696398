//! Cursor that reads the tokens of a body: brackets, commas, names, strings, numbers, literals.
//!
//! Invariant: the document is validated up to the cursor, and nested no deeper than the limit.

use super::number;
use super::scan;
use super::stop::{ReadResult, Stop};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// A string as it occurs in the body, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoted<'a> {
    /// The bytes between the quotes.
    pub raw: &'a [u8],
    /// Whether they contain a backslash.
    pub escaped: bool,
}

/// A position to return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    at: usize,
    depth: u32,
}

/// Type of the next value, from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// Reads one document from front to back.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    depth_max: u32,
    key_bytes_max: usize,
    number_bytes_max: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize, limits: &Limits) -> Self {
        Self {
            bytes,
            at,
            depth: 0,
            depth_max: limits.json_depth_max,
            key_bytes_max: limits.key_bytes_max,
            number_bytes_max: limits.number_bytes_max,
        }
    }

    #[inline]
    pub fn position(&self) -> Position {
        Position {
            at: self.at,
            depth: self.depth,
        }
    }

    #[inline]
    pub fn return_to(&mut self, position: Position) {
        self.at = position.at;
        self.depth = position.depth;
    }

    /// Returns the offset in the body, for messages.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns whether the nesting limit allows this many more levels.
    #[inline]
    pub fn can_nest(&self, levels: u32) -> bool {
        self.depth.saturating_add(levels) <= self.depth_max
    }

    /// Returns the unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Consumes bytes that the caller inspected in [`Self::rest`].
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }

    /// Returns the type of the next value.
    #[inline]
    pub fn shape(&mut self) -> ReadResult<Shape> {
        Ok(match self.peek() {
            Some(b'"') => Shape::String,
            Some(b'{') => Shape::Object,
            Some(b'-' | b'0'..=b'9') => Shape::Number,
            Some(b'[') => Shape::Array,
            Some(b't') => Shape::True,
            Some(b'f') => Shape::False,
            Some(b'n') => Shape::Null,
            _ => return Err(self.expected("a value")),
        })
    }

    /// Enters the object or array whose bracket is next.
    #[inline]
    pub fn open(&mut self) -> ReadResult<()> {
        self.at += 1;
        self.depth += 1;
        if self.depth > self.depth_max {
            Err(self.too_deep())
        } else {
            Ok(())
        }
    }

    /// Returns the next member's name and consumes its colon; `None` after the closing brace. `is_first` is
    /// true before the first member.
    #[inline]
    pub fn member(&mut self, is_first: &mut bool) -> ReadResult<Option<Quoted<'a>>> {
        if !self.separator(b'}', is_first)? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.expected("a name in double quotes"));
        }
        let name = self.string()?;
        if name.raw.len() > self.key_bytes_max {
            return Err(self.key_too_long());
        }
        if self.peek() != Some(b':') {
            return Err(self.expected("a colon"));
        }
        self.at += 1;
        Ok(Some(name))
    }

    /// Returns whether another element follows; false after the closing bracket.
    #[inline]
    pub fn element(&mut self, is_first: &mut bool) -> ReadResult<bool> {
        self.separator(b']', is_first)
    }

    #[inline]
    fn separator(&mut self, closing: u8, is_first: &mut bool) -> ReadResult<bool> {
        match self.peek() {
            Some(byte) if byte == closing => {
                self.at += 1;
                self.depth = self.depth.saturating_sub(1);
                Ok(false)
            }
            _ if *is_first => {
                *is_first = false;
                Ok(true)
            }
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.expected("a comma or the end of the object or list")),
        }
    }

    /// Reads the string whose opening quote is next. Its escapes are not checked yet.
    #[inline]
    pub fn string(&mut self) -> ReadResult<Quoted<'a>> {
        let start = self.at + 1;
        let mut end = scan::special(self.bytes, start);
        let mut escaped = false;
        while self.bytes.get(end) == Some(&b'\\') {
            escaped = true;
            // Continues after the escaped character, which may be a quote.
            end = scan::special(self.bytes, end + 2);
        }
        self.at = end;
        if self.bytes.get(end) != Some(&b'"') {
            return Err(self.expected("the end of a string"));
        }
        self.at = end + 1;
        let raw = self.bytes.get(start..end).unwrap_or_default();
        Ok(Quoted { raw, escaped })
    }

    /// Reads the number whose first byte is next. Returns it unconverted.
    #[inline]
    pub fn number(&mut self) -> ReadResult<&'a [u8]> {
        // Looks at one byte more than the limit, to detect a literal that exceeds it.
        let window = self.rest();
        let window = window.get(..=self.number_bytes_max).unwrap_or(window);
        match number::literal(window) {
            Some(literal) if literal.len() > self.number_bytes_max => Err(self.malformed(
                "a number literal longer than the limit",
                "a shorter literal",
            )),
            Some(literal) => {
                self.at += literal.len();
                Ok(literal)
            }
            None => Err(self.expected("a number")),
        }
    }

    /// Consumes `true`, `false` or `null`, of which the first byte is next.
    #[inline]
    pub fn word(&mut self, word: &'static str) -> ReadResult<()> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Consumes a null, if it is next.
    #[inline]
    pub fn null(&mut self) -> ReadResult<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.word("null").map(|()| true)
    }

    /// Refusal for a byte that cannot continue the document.
    #[cold]
    pub fn expected(&self, what: &str) -> Stop {
        let found = match self.bytes.get(self.at) {
            None => "the body ends",
            Some(0..0x20) => "a control character",
            Some(0x80..) => "a non-ASCII byte",
            Some(_) => "an unexpected character",
        };
        self.malformed(found, what)
    }

    #[cold]
    pub fn malformed(&self, found: &str, expected: &str) -> Stop {
        let at = self.at.min(self.bytes.len());
        Refusal::malformed("body", format!("{found} at byte {at}; expected {expected}")).into()
    }

    /// Refusal for the string just read, which has an invalid escape.
    #[cold]
    pub fn bad_escape(&self) -> Stop {
        self.malformed(
            "a string with an unknown escape sequence ends",
            "an escape sequence of JSON",
        )
    }

    #[cold]
    fn too_deep(&self) -> Stop {
        let levels = self.depth_max;
        self.malformed(
            "JSON nests deeper than the limit",
            &format!("at most {levels} levels"),
        )
    }

    #[cold]
    fn key_too_long(&self) -> Stop {
        let bytes = self.key_bytes_max;
        self.malformed(
            "a name longer than the limit ends",
            &format!("at most {bytes} bytes"),
        )
    }
}
