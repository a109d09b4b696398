//! Attributes: a key and, whatever type its value has, the text that is stored.
//!
//! A `oneof` that is set several times holds the last; an array or list that is sent in several pieces
//! without another member between is one. So a value is found first and written after.

use super::fields::{any_value, key_value, list};
use super::{Decoder, Stop};
use crate::limits::Limits;
use crate::text;
use crate::visit::{Owner, Visitor, Warning};
use crate::wire::{Cursor, Flaw};

/// An `AnyValue` after merging.
enum Value<'a> {
    Empty,
    Text(&'a [u8]),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
    Many(Elements<'a>),
}

/// The elements of an array or key-value list, over all the pieces it was sent in.
struct Elements<'a> {
    /// Which of the two it is: the tag of its pieces.
    tag: u32,
    /// What is left of the piece being read.
    piece: Cursor<'a>,
    /// What is left of the `AnyValue` that the piece is in: further pieces, perhaps.
    any_value: Cursor<'a>,
    /// What is left of the `KeyValue` that the `AnyValue` is in: further ones, perhaps.
    key_value: Cursor<'a>,
}

impl<'a> Elements<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, Flaw> {
        loop {
            if let Some(element) = self.piece.find(list::VALUES)? {
                return Ok(Some(element));
            }
            if let Some(piece) = self.any_value.find(self.tag)? {
                self.piece = Cursor::new(piece, &list::MESSAGE);
            } else if let Some(any_value) = self.key_value.find(key_value::VALUE)? {
                self.any_value = Cursor::new(any_value, &any_value::MESSAGE);
            } else {
                return Ok(None);
            }
        }
    }

    fn is_array(&self) -> bool {
        self.tag == any_value::ARRAY_VALUE
    }
}

impl<'a> Value<'a> {
    /// Adds the members of one more `AnyValue` message; `after` is what follows it in its `KeyValue`.
    #[inline]
    fn merge(&mut self, message: &'a [u8], after: Cursor<'a>) -> Result<(), Flaw> {
        let mut fields = Cursor::new(message, &any_value::MESSAGE);
        while let Some(tag) = fields.tag()? {
            match tag {
                any_value::STRING_VALUE => *self = Self::Text(fields.bytes()?),
                any_value::BOOL_VALUE => *self = Self::Bool(fields.varint()? != 0),
                any_value::INT_VALUE => *self = Self::Int(fields.int64()?),
                any_value::DOUBLE_VALUE => *self = Self::Double(f64::from_bits(fields.fixed64()?)),
                any_value::ARRAY_VALUE | any_value::KVLIST_VALUE => {
                    let piece = Cursor::new(fields.bytes()?, &list::MESSAGE);
                    self.begin(Elements {
                        tag,
                        piece,
                        any_value: fields,
                        key_value: after,
                    });
                }
                any_value::BYTES_VALUE => *self = Self::Bytes(fields.bytes()?),
                _ => drop(fields.skip(tag)?),
            }
        }
        Ok(())
    }

    /// Becomes these elements, unless they only continue what it is already.
    fn begin(&mut self, elements: Elements<'a>) {
        match self {
            Self::Many(begun) if begun.tag == elements.tag => {}
            _ => *self = Self::Many(elements),
        }
    }
}

/// Key and value of a `KeyValue` message.
#[inline]
fn read_key_value(message: &[u8]) -> Result<(&[u8], Value<'_>), Flaw> {
    use key_value::{KEY, MESSAGE, VALUE};
    let (mut key, mut value) = (&b""[..], Value::Empty);
    let mut fields = Cursor::new(message, &MESSAGE);
    while let Some(tag) = fields.tag()? {
        match tag {
            KEY => key = fields.bytes()?,
            VALUE => {
                let any_value = fields.bytes()?;
                value.merge(any_value, fields)?;
            }
            _ => drop(fields.skip(tag)?),
        }
    }
    Ok((key, value))
}

impl<'a, V: Visitor> Decoder<'a, '_, V> {
    pub(super) fn attribute(&mut self, owner: Owner, message: &'a [u8]) -> Result<(), Stop> {
        let (key, value) = read_key_value(message)?;
        let writer = &mut self.writer;
        writer.text.clear();
        match value {
            Value::Text(text) => return Ok(self.visitor.attribute(owner, key, text)?),
            Value::Empty => {}
            Value::Bool(value) => text::push_bool(&mut writer.text, value),
            Value::Int(value) => text::push_int(&mut writer.text, value),
            Value::Double(value) => text::push_double(&mut writer.text, value),
            Value::Bytes(raw) => {
                text::push_base64(
                    &mut writer.text,
                    text::enough_of(raw, self.limits.text_bytes_max),
                );
            }
            Value::Many(elements) => writer.write(elements, self.limits, self.visitor)?,
        }
        Ok(self.visitor.attribute(owner, key, &writer.text)?)
    }
}

/// Writes arrays and lists as JSON, with a stack of its own.
#[derive(Default)]
pub(super) struct Writer<'a> {
    text: Vec<u8>,
    open: Vec<Elements<'a>>,
    is_too_deep: bool,
}

impl<'a> Writer<'a> {
    /// Writes no more than is kept and one element: what is announced beyond that costs nothing.
    #[inline(never)]
    fn write<V: Visitor>(
        &mut self,
        elements: Elements<'a>,
        limits: &Limits,
        visitor: &mut V,
    ) -> Result<(), Stop> {
        self.is_too_deep = false;
        self.open.clear();
        self.begin(elements, limits);
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
        Ok(())
    }

    fn element(&mut self, message: &'a [u8], is_array: bool, limits: &Limits) -> Result<(), Flaw> {
        if !matches!(self.text.last(), Some(b'[' | b'{')) {
            self.text.push(b',');
        }
        let mut value = Value::Empty;
        if is_array {
            value.merge(message, Cursor::new(b"", &key_value::MESSAGE))?;
        } else {
            let (key, of_key) = read_key_value(message)?;
            text::push_json_string(&mut self.text, text::enough_of(key, limits.text_bytes_max));
            self.text.push(b':');
            value = of_key;
        }
        self.value(value, limits);
        Ok(())
    }

    fn value(&mut self, value: Value<'a>, limits: &Limits) {
        match value {
            Value::Empty => self.text.extend_from_slice(b"null"),
            Value::Text(raw) => {
                text::push_json_string(&mut self.text, text::enough_of(raw, limits.text_bytes_max));
            }
            Value::Bool(value) => text::push_bool(&mut self.text, value),
            Value::Int(value) => text::push_int(&mut self.text, value),
            Value::Double(value) => text::push_json_double(&mut self.text, value),
            Value::Bytes(raw) => {
                self.text.push(b'"');
                text::push_base64(&mut self.text, text::enough_of(raw, limits.text_bytes_max));
                self.text.push(b'"');
            }
            Value::Many(elements) => self.begin(elements, limits),
        }
    }

    fn begin(&mut self, elements: Elements<'a>, limits: &Limits) {
        if u32::try_from(self.open.len()).is_ok_and(|depth| depth < limits.value_depth_max) {
            self.text
                .push(if elements.is_array() { b'[' } else { b'{' });
            self.open.push(elements);
        } else {
            self.text.extend_from_slice(text::TOO_DEEP);
            self.is_too_deep = true;
        }
    }

    fn end(&mut self) {
        if let Some(ended) = self.open.pop() {
            self.text.push(if ended.is_array() { b']' } else { b'}' });
        }
    }
}
