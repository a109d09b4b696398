//! Decoder of attributes: a key, and a value that is converted to stored text according to its type.
//!
//! If a `oneof` is set several times, the last member counts. Consecutive pieces of an array or key-value list form
//! one value. Since later bytes can change the value, the decoder locates it first and writes it afterwards.

use super::fields::{any_value, key_value, list};
use super::{Decoder, Stop};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::text::{self, Number};
use crate::visit::{self, Owner, Visitor, Warning};
use crate::wire::{Cursor, WireError};

/// An `AnyValue` after merging.
#[derive(Clone, Copy)]
enum Value<'a> {
    Empty,
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Number(Number),
    Many(Pieces<'a>),
}

/// An array or key-value list, sent in one or more pieces.
#[derive(Clone, Copy)]
struct Pieces<'a> {
    /// Tag of the pieces: array or key-value list.
    tag: u32,
    /// Number of pieces to skip: they belong to an earlier value that this value replaced.
    outdated_count: u32,
    /// The messages that contain the pieces.
    source: Source<'a>,
}

/// The message that contains a value.
#[derive(Clone, Copy)]
enum Source<'a> {
    KeyValue(&'a [u8]),
    AnyValue(&'a [u8]),
}

/// Iterator over the elements of an array or key-value list.
struct Elements<'a> {
    tag: u32,
    piece: Cursor<'a>,
    any_value: Cursor<'a>,
    key_value: Cursor<'a>,
}

impl<'a> Elements<'a> {
    fn new(pieces: &Pieces<'a>) -> Result<Self, WireError> {
        let (key_value, any_value) = match pieces.source {
            Source::KeyValue(message) => (message, &b""[..]),
            Source::AnyValue(message) => (&b""[..], message),
        };
        let mut elements = Self {
            tag: pieces.tag,
            piece: Cursor::new(b"", &list::MESSAGE),
            any_value: Cursor::new(any_value, &any_value::MESSAGE),
            key_value: Cursor::new(key_value, &key_value::MESSAGE),
        };
        // Moves to the first piece that belongs to this value.
        for _ in 0..=pieces.outdated_count {
            elements.next_piece()?;
        }
        Ok(elements)
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        loop {
            if let Some(element) = self.piece.find(list::VALUES)? {
                return Ok(Some(element));
            }
            if !self.next_piece()? {
                return Ok(None);
            }
        }
    }

    fn next_piece(&mut self) -> Result<bool, WireError> {
        loop {
            if let Some(piece) = self.any_value.find(self.tag)? {
                self.piece = Cursor::new(piece, &list::MESSAGE);
                return Ok(true);
            }
            match self.key_value.find(key_value::VALUE)? {
                Some(message) => self.any_value = Cursor::new(message, &any_value::MESSAGE),
                None => return Ok(false),
            }
        }
    }

    fn is_array(&self) -> bool {
        self.tag == any_value::ARRAY_VALUE
    }
}

/// State of the search for a value that several messages may contain together.
struct Merge<'a> {
    value: Value<'a>,
    source: Source<'a>,
    array_pieces: u32,
    list_pieces: u32,
}

impl<'a> Merge<'a> {
    fn new(source: Source<'a>) -> Self {
        Self {
            value: Value::Empty,
            source,
            array_pieces: 0,
            list_pieces: 0,
        }
    }

    /// Adds the members of another `AnyValue` message.
    fn any_value(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        let mut fields = Cursor::new(message, &any_value::MESSAGE);
        while let Some(tag) = fields.tag()? {
            self.value = match tag {
                any_value::STRING_VALUE => Value::Text(fields.bytes()?),
                any_value::BOOL_VALUE => Value::Number(Number::Bool(fields.varint()? != 0)),
                any_value::INT_VALUE => Value::Number(Number::Int(fields.int64()?)),
                any_value::DOUBLE_VALUE => {
                    Value::Number(Number::Double(f64::from_bits(fields.fixed64()?)))
                }
                any_value::ARRAY_VALUE | any_value::KVLIST_VALUE => {
                    fields.bytes()?;
                    self.piece(tag)
                }
                any_value::BYTES_VALUE => Value::Bytes(fields.bytes()?),
                _ => {
                    fields.skip(tag)?;
                    continue;
                }
            };
        }
        Ok(())
    }

    /// Returns the value after one more piece. The piece continues the value only if no other member came in between.
    fn piece(&mut self, tag: u32) -> Value<'a> {
        let is_array = tag == any_value::ARRAY_VALUE;
        let seen = if is_array {
            &mut self.array_pieces
        } else {
            &mut self.list_pieces
        };
        let outdated_count = *seen;
        *seen += 1;
        match self.value {
            Value::Many(begun) if begun.tag == tag => self.value,
            _ => Value::Many(Pieces {
                tag,
                outdated_count,
                source: self.source,
            }),
        }
    }
}

/// Fast path: key and `AnyValue` of a `KeyValue` message if both are short and nothing else is in it.
#[inline]
fn read_pair(message: &[u8]) -> Option<(&[u8], Cursor<'_>)> {
    let mut fields = Cursor::new(message, &key_value::MESSAGE);
    let key = fields.short(key_value::KEY)?;
    let value = fields.short(key_value::VALUE)?;
    fields
        .is_at_end()
        .then_some((key, Cursor::new(value, &any_value::MESSAGE)))
}

/// Returns the value of an `AnyValue` that holds exactly one string or number.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a nested enum: cheap only if the caller destructures it inline"
)]
fn read_single_member(mut fields: Cursor<'_>) -> Option<visit::Value<'_>> {
    let value = match fields.tag().ok()?? {
        any_value::STRING_VALUE => visit::Value::Text(fields.bytes().ok()?),
        any_value::INT_VALUE => visit::Value::Number(Number::Int(fields.int64().ok()?)),
        any_value::BOOL_VALUE => visit::Value::Number(Number::Bool(fields.varint().ok()? != 0)),
        any_value::DOUBLE_VALUE => {
            visit::Value::Number(Number::Double(f64::from_bits(fields.fixed64().ok()?)))
        }
        _ => return None,
    };
    fields.is_at_end().then_some(value)
}

/// Fast path: key and value of a usual `KeyValue` message.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn read_plain(message: &[u8]) -> Option<(&[u8], visit::Value<'_>)> {
    let (key, value) = read_pair(message)?;
    Some((key, read_single_member(value)?))
}

/// Reads key and value of any `KeyValue` message.
fn read_key_value(message: &[u8]) -> Result<(&[u8], Value<'_>), WireError> {
    let (mut key, mut merge) = (&b""[..], Merge::new(Source::KeyValue(message)));
    let mut fields = Cursor::new(message, &key_value::MESSAGE);
    while let Some(tag) = fields.tag()? {
        match tag {
            key_value::KEY => key = fields.bytes()?,
            key_value::VALUE => merge.any_value(fields.bytes()?)?,
            _ => drop(fields.skip(tag)?),
        }
    }
    Ok((key, merge.value))
}

fn read_any_value(message: &[u8]) -> Result<Value<'_>, WireError> {
    let mut merge = Merge::new(Source::AnyValue(message));
    merge.any_value(message)?;
    Ok(merge.value)
}

impl<'a, V: Visitor> Decoder<'a, '_, V> {
    /// Reads an attribute of a span. Looks in the cache first, because most span attributes repeat.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    pub(super) fn span_attribute(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        // The cache may also contain JSON attributes, which never begin with this byte.
        let begins_with_key = message
            .first()
            .is_some_and(|tag| u32::from(*tag) == key_value::KEY);
        if begins_with_key && self.visitor.repeated_attribute(message)? {
            return Ok(());
        }
        self.new_span_attribute(message)
    }

    #[inline(never)]
    fn new_span_attribute(&mut self, message: &'a [u8]) -> Result<(), Stop> {
        let Some((key, value)) = read_plain(message) else {
            return self.any_attribute(Owner::Span, message);
        };
        self.plain_attribute(Owner::Span, key, value)?;
        // Afterwards, because the cache refers to the strings that the call above stored.
        self.visitor.cache_attribute(message, key, value);
        Ok(())
    }

    /// Reads an attribute of a resource, scope, event or link.
    pub(super) fn attribute(&mut self, owner: Owner, message: &'a [u8]) -> Result<(), Stop> {
        match read_plain(message) {
            Some((key, value)) => Ok(self.plain_attribute(owner, key, value)?),
            None => self.any_attribute(owner, message),
        }
    }

    #[inline]
    fn plain_attribute(
        &mut self,
        owner: Owner,
        key: &[u8],
        value: visit::Value<'_>,
    ) -> Result<(), Refusal> {
        match value {
            visit::Value::Text(text) => self.visitor.attribute(owner, key, text),
            visit::Value::Number(number) => self.visitor.number(owner, key, number),
        }
    }

    #[inline(never)]
    fn any_attribute(&mut self, owner: Owner, message: &'a [u8]) -> Result<(), Stop> {
        let (key, value) = read_key_value(message)?;
        let writer = &mut self.writer;
        let text = match value {
            Value::Empty => b"",
            Value::Text(text) => text,
            Value::Number(number) => return Ok(self.visitor.number(owner, key, number)?),
            Value::Bytes(raw) => {
                writer.text.clear();
                text::push_base64(
                    &mut writer.text,
                    text::bounded_prefix(raw, self.limits.text_bytes_max),
                );
                &writer.text
            }
            Value::Many(pieces) => writer.write(&pieces, self.limits, self.visitor)?,
        };
        Ok(self.visitor.attribute(owner, key, text)?)
    }
}

/// Writes arrays and lists as JSON, with an explicit stack.
#[derive(Default)]
pub(super) struct Writer<'a> {
    text: Vec<u8>,
    open: Vec<Elements<'a>>,
    is_too_deep: bool,
}

impl<'a> Writer<'a> {
    /// Writes the value. Stops once the text exceeds the limit for stored text, so that elements beyond it cost nothing.
    #[inline(never)]
    fn write<V: Visitor>(
        &mut self,
        pieces: &Pieces<'a>,
        limits: &Limits,
        visitor: &mut V,
    ) -> Result<&[u8], Stop> {
        self.is_too_deep = false;
        self.text.clear();
        self.open.clear();
        self.begin(pieces, limits)?;
        while let Some(innermost) = self.open.last_mut() {
            match innermost.next()? {
                Some(element) => {
                    visitor.spend_nodes(1)?;
                    let is_array = innermost.is_array();
                    self.element(element, is_array, limits)?;
                }
                None => self.end(),
            }
            if self.text.len() > limits.text_bytes_max {
                break;
            }
        }
        if self.is_too_deep {
            visitor.warn(Warning::ValueTooDeep);
        }
        Ok(&self.text)
    }

    fn element(
        &mut self,
        message: &'a [u8],
        is_array: bool,
        limits: &Limits,
    ) -> Result<(), WireError> {
        if !matches!(self.text.last(), Some(b'[' | b'{')) {
            self.text.push(b',');
        }
        let value = if is_array {
            read_any_value(message)?
        } else {
            let (key, value) = read_key_value(message)?;
            text::push_json_string(
                &mut self.text,
                text::bounded_prefix(key, limits.text_bytes_max),
            );
            self.text.push(b':');
            value
        };
        self.value(value, limits)
    }

    fn value(&mut self, value: Value<'a>, limits: &Limits) -> Result<(), WireError> {
        match value {
            Value::Empty => self.text.extend_from_slice(b"null"),
            Value::Text(raw) => {
                text::push_json_string(
                    &mut self.text,
                    text::bounded_prefix(raw, limits.text_bytes_max),
                );
            }
            Value::Number(Number::Double(value)) => text::push_json_double(&mut self.text, value),
            Value::Number(number) => number.push(&mut self.text),
            Value::Bytes(raw) => {
                self.text.push(b'"');
                text::push_base64(
                    &mut self.text,
                    text::bounded_prefix(raw, limits.text_bytes_max),
                );
                self.text.push(b'"');
            }
            Value::Many(pieces) => self.begin(&pieces, limits)?,
        }
        Ok(())
    }

    fn begin(&mut self, pieces: &Pieces<'a>, limits: &Limits) -> Result<(), WireError> {
        if u32::try_from(self.open.len()).is_ok_and(|depth| depth < limits.value_depth_max) {
            let elements = Elements::new(pieces)?;
            self.text
                .push(if elements.is_array() { b'[' } else { b'{' });
            self.open.push(elements);
        } else {
            self.text.extend_from_slice(text::TOO_DEEP);
            self.is_too_deep = true;
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(ended) = self.open.pop() {
            self.text.push(if ended.is_array() { b']' } else { b'}' });
        }
    }
}
