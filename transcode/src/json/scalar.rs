//! Reader of scalar attribute values: interpreted by the name of their member or, with a warning, by their JSON
//! type.

use super::cursor::Shape;
use super::field::Field;
use super::number::{self, IntegerValue};
use super::reader::Reader;
use super::stop::ReadResult;
use super::strings::Text;
use crate::base64;
use crate::text;
use crate::visit::{Visitor, Warning};

/// A JSON scalar.
#[derive(Clone, Debug)]
pub(super) enum Token<'a> {
    Null,
    Text(Text<'a>),
    Number(&'a [u8]),
    Bool(bool),
}

/// An OTLP scalar; bytes stay base64-encoded.
#[derive(Clone, Debug)]
pub(super) enum Scalar<'a> {
    Empty,
    Text(Text<'a>),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads the scalar of this type.
    pub fn token(&mut self, shape: Shape) -> ReadResult<Token<'a>> {
        Ok(match shape {
            Shape::String => {
                let quoted = self.cursor.string()?;
                Token::Text(self.text(quoted)?)
            }
            Shape::Number => Token::Number(self.cursor.number()?),
            Shape::True => self.cursor.word("true").map(|()| Token::Bool(true))?,
            Shape::False => self.cursor.word("false").map(|()| Token::Bool(false))?,
            _ => self.cursor.word("null").map(|()| Token::Null)?,
        })
    }

    /// Interprets a token as the value of an `AnyValue` member.
    pub fn scalar(&mut self, member: Field, token: Token<'a>) -> Scalar<'a> {
        match (member, token) {
            (_, Token::Null) => Scalar::Empty,
            (Field::StringValue, Token::Text(text)) => Scalar::Text(text),
            (Field::BytesValue, Token::Text(text)) => self.bytes(text),
            (Field::BoolValue, Token::Bool(value)) => Scalar::Bool(value),
            (Field::IntValue, Token::Number(literal)) => self.int(literal, Text::Body(literal)),
            (Field::DoubleValue, Token::Number(literal)) => {
                self.double(literal, Text::Body(literal))
            }
            (Field::IntValue | Field::DoubleValue, Token::Text(text)) => {
                // Moves the arena out, because `text` borrows from it while `self` reports warnings.
                let arena = std::mem::take(&mut self.scratch.arena);
                let scalar = self.number_in_text(member, text.bytes(&arena), text.clone());
                self.scratch.arena = arena;
                scalar
            }
            (_, token) => {
                self.warn(Warning::ValueType);
                let is_bool = member == Field::BoolValue;
                let word = if is_bool {
                    self.word_for_bool(&token)
                } else {
                    None
                };
                word.map_or_else(|| self.bare(token), Scalar::Bool)
            }
        }
    }

    /// Interprets a token without a member name.
    pub fn bare(&mut self, token: Token<'a>) -> Scalar<'a> {
        match token {
            Token::Null => Scalar::Empty,
            Token::Text(text) => Scalar::Text(text),
            Token::Bool(value) => Scalar::Bool(value),
            Token::Number(literal) => match number::to_integer(literal) {
                // A bare `1.0` or `1e3` is a double, although its value is an integer.
                IntegerValue::Exact(value) if is_int_literal(literal) => i64::try_from(value)
                    .map_or_else(|_| self.double(literal, Text::Body(literal)), Scalar::Int),
                _ => self.double(literal, Text::Body(literal)),
            },
        }
    }

    /// Returns `literal` as an int64 or, with a warning, as a double.
    fn int(&mut self, literal: &[u8], text: Text<'a>) -> Scalar<'a> {
        if let IntegerValue::Exact(value) = number::to_integer(literal)
            && let Ok(value) = i64::try_from(value)
        {
            return Scalar::Int(value);
        }
        self.warn(Warning::IntAsDouble);
        self.double(literal, text)
    }

    /// Returns `literal` as a double or, with a warning, `text` if it is out of range.
    fn double(&mut self, literal: &[u8], text: Text<'a>) -> Scalar<'a> {
        let value = number::double(literal);
        if value.is_finite() {
            return Scalar::Double(value);
        }
        self.warn(Warning::DoubleRange);
        Scalar::Text(text)
    }

    fn number_in_text(&mut self, member: Field, bytes: &[u8], text: Text<'a>) -> Scalar<'a> {
        let is_int = member == Field::IntValue;
        match self.number_literal(bytes) {
            Some(literal) if is_int => self.int(literal, text),
            Some(literal) => self.double(literal, text),
            None if is_int => self.of_another_type(text),
            None => self.non_finite(bytes, text),
        }
    }

    fn of_another_type(&mut self, text: Text<'a>) -> Scalar<'a> {
        self.warn(Warning::ValueType);
        Scalar::Text(text)
    }

    /// Returns the double that a word (`NaN`, `Infinity`) stands for.
    fn non_finite(&mut self, bytes: &[u8], text: Text<'a>) -> Scalar<'a> {
        let Some((value, is_proto_json)) = non_finite(bytes) else {
            return self.of_another_type(text);
        };
        if !is_proto_json {
            self.warn(Warning::NumberNotation);
        }
        Scalar::Double(value)
    }

    /// Converts any variant of base64 to standard base64. Returns other text unchanged, with a warning.
    fn bytes(&mut self, text: Text<'a>) -> Scalar<'a> {
        let (arena, decoded) = (&mut self.scratch.arena, &mut self.scratch.decoded);
        let encoded = text.bytes(arena);
        decoded.resize(encoded.len(), 0);
        let Some(raw) = base64::decode(encoded, decoded) else {
            self.warn(Warning::BytesNotBase64);
            return Scalar::Text(text);
        };
        let start = arena.len();
        text::push_base64(arena, raw);
        Scalar::Text(Text::Arena(start..arena.len()))
    }

    /// Returns the boolean for `1`, `0`, `"true"` and `"false"`.
    fn word_for_bool(&self, token: &Token<'a>) -> Option<bool> {
        let word = match token {
            Token::Number(literal) => literal,
            Token::Text(text) => text.bytes(&self.scratch.arena),
            _ => return None,
        };
        let is_any_of = |words: [&str; 2]| {
            words
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        match (is_any_of(["1", "true"]), is_any_of(["0", "false"])) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Appends a scalar to the value being built: as stored text, or as JSON inside a container.
    pub fn push(&mut self, scalar: &Scalar<'a>, is_stored_text: bool) {
        let (arena, out) = (&self.scratch.arena, &mut self.scratch.rendered);
        match scalar {
            Scalar::Empty if is_stored_text => {}
            Scalar::Empty => out.extend_from_slice(b"null"),
            Scalar::Text(text) if is_stored_text => out.extend_from_slice(text.bytes(arena)),
            Scalar::Text(text) => text::push_json_string(out, text.bytes(arena)),
            Scalar::Int(value) => text::push_int(out, *value),
            Scalar::Double(value) if is_stored_text => text::push_double(out, *value),
            Scalar::Double(value) => text::push_json_double(out, *value),
            Scalar::Bool(value) => text::push_bool(out, *value),
        }
    }
}

/// Returns whether a bare number is an integer.
fn is_int_literal(literal: &[u8]) -> bool {
    // An integer has no negative zero, so `-0` is a double.
    literal != b"-0"
        && literal
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// Returns the double that a word such as `NaN` stands for, and whether this is the spelling of `ProtoJSON`.
fn non_finite(text: &[u8]) -> Option<(f64, bool)> {
    const NAMES: [(&str, f64); 10] = [
        ("NaN", f64::NAN),
        ("Infinity", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("+Infinity", f64::INFINITY),
        ("inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("+inf", f64::INFINITY),
        ("∞", f64::INFINITY),
        ("-∞", f64::NEG_INFINITY),
        ("-NaN", f64::NAN),
    ];
    let known = NAMES
        .iter()
        .zip(0..)
        .find(|((name, _), _)| text.eq_ignore_ascii_case(name.as_bytes()));
    // The first three names are those of `ProtoJSON`, which is case-sensitive.
    known.map(|((name, value), position)| (*value, position < 3 && text == name.as_bytes()))
}
