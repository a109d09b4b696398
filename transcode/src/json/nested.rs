//! Attribute values, however nested, as stored text: a machine with a stack of its own.
//!
//! Where a value is expected, an object is an `AnyValue` if it has a member that `AnyValue` has; it then
//! means its last one. Otherwise it is a bare map and kept as JSON, unless its only member is named
//! `…Value`: that is a kind of value newer than we are, and means nothing.

use super::cursor::{Quoted, Shape};
use super::field::Field;
use super::reader::Reader;
use super::scalar::{Scalar, Token};
use super::stop::Outcome;
use super::strings::Text;
use crate::text;
use crate::visit::{Visitor, Warning};

/// A container of the body that is open while a value is rendered.
#[derive(Debug)]
pub(super) struct Frame {
    kind: Kind,
    /// No member or element was read yet.
    fresh: bool,
    /// Where its text begins.
    mark: usize,
    /// What stands here was already warned about.
    is_quiet: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An object in a value's place.
    Value(Meaning),
    /// The elements of an array; `is_bare` if no message around it writes the brackets.
    Elements { is_bare: bool },
    /// The elements of a list of keys and values.
    Pairs { is_bare: bool },
    /// The object around either list, `{"values": […]}`.
    Message { closing: u8 },
    /// A key and a value; so many bytes of key are written, the value behind them.
    Pair { key_bytes: usize, has_value: bool },
}

/// What an object in a value's place turned out to be so far.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Unclear,
    AnyValue(Option<Field>),
    Map { is_only_newer: bool },
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Renders the value that follows. In a map of attributes (`is_quiet`) it may be bare.
    pub fn render(&mut self, is_quiet: bool) -> Outcome<()> {
        self.scratch.rendered.clear();
        self.value_depth = 0;
        self.begin(is_quiet)?;
        while let Some(frame) = self.scratch.frames.pop() {
            match frame.kind {
                Kind::Value(meaning) => self.value_step(frame, meaning)?,
                Kind::Elements { is_bare } => self.elements_step(frame, is_bare)?,
                Kind::Pairs { is_bare } => self.pairs_step(frame, is_bare)?,
                Kind::Message { closing } => self.message_step(frame, closing)?,
                Kind::Pair { key_bytes, has_value } => self.pair_step(frame, key_bytes, has_value)?,
            }
        }
        Ok(())
    }

    /// A value: a scalar is written, a container opened.
    fn begin(&mut self, is_quiet: bool) -> Outcome<()> {
        let shape = self.cursor.shape()?;
        if shape == Shape::Object {
            self.cursor.open()?;
            self.stack(Kind::Value(Meaning::Unclear), is_quiet);
            return Ok(());
        }
        if !is_quiet && shape != Shape::Null {
            self.warn(Warning::ValueBare);
        }
        if shape == Shape::Array {
            return self.list(Kind::Elements { is_bare: true }, b'[');
        }
        let token = self.token(shape)?;
        let scalar = self.bare(token);
        self.push_here(&scalar);
        Ok(())
    }

    /// A value within another. It is paid for first.
    fn begin_child(&mut self, is_quiet: bool) -> Outcome<()> {
        self.visitor.spend_nodes(1)?;
        self.begin(is_quiet)
    }

    /// A list that stands without its message.
    fn list(&mut self, kind: Kind, bracket: u8) -> Outcome<()> {
        if !self.deepen(bracket) {
            return self.skip();
        }
        self.cursor.open()?;
        self.stack(kind, true);
        Ok(())
    }

    fn stack(&mut self, kind: Kind, is_quiet: bool) {
        let mark = self.scratch.rendered.len();
        self.scratch.frames.push(Frame { kind, fresh: true, mark, is_quiet });
    }

    fn resume(&mut self, frame: Frame, kind: Kind) {
        self.scratch.frames.push(Frame { kind, ..frame });
    }

    /// Writes an opening bracket; what is nested too deep for one is written as a marker.
    fn deepen(&mut self, bracket: u8) -> bool {
        if self.value_depth >= self.value_depth_max {
            self.warn(Warning::ValueTooDeep);
            self.scratch.rendered.extend_from_slice(text::TOO_DEEP);
            return false;
        }
        self.value_depth += 1;
        self.scratch.rendered.push(bracket);
        true
    }

    fn close(&mut self, bracket: u8) {
        self.value_depth = self.value_depth.saturating_sub(1);
        self.scratch.rendered.push(bracket);
    }

    fn comma(&mut self) {
        if !matches!(self.scratch.rendered.last(), Some(b'[' | b'{')) {
            self.scratch.rendered.push(b',');
        }
    }

    /// Writes a scalar: as JSON if a container is open around it.
    fn push_here(&mut self, scalar: &Scalar<'a>) {
        let is_stored_text = self.scratch.frames.is_empty();
        self.push(scalar, is_stored_text);
    }

    fn elements_step(&mut self, mut frame: Frame, is_bare: bool) -> Outcome<()> {
        if !self.cursor.element(&mut frame.fresh)? {
            if is_bare {
                self.close(b']');
            }
            return Ok(());
        }
        self.comma();
        self.scratch.frames.push(frame);
        self.begin_child(is_bare)
    }

    fn pairs_step(&mut self, mut frame: Frame, is_bare: bool) -> Outcome<()> {
        if !self.element(&mut frame.fresh)? {
            if is_bare {
                self.close(b'}');
            }
            return Ok(());
        }
        self.scratch.frames.push(frame);
        if self.cursor.peek() != Some(b'{') {
            self.warn(Warning::AttributeUnreadable);
            return self.skip();
        }
        self.visitor.spend_nodes(1)?;
        self.cursor.open()?;
        self.comma();
        self.stack(Kind::Pair { key_bytes: 0, has_value: false }, false);
        Ok(())
    }

    fn message_step(&mut self, mut frame: Frame, closing: u8) -> Outcome<()> {
        match self.field(&mut frame.fresh)? {
            None => self.close(closing),
            Some(Field::Values) => {
                self.scratch.frames.push(frame);
                if self.opens_list()? {
                    self.stack(elements(closing, false), false);
                }
            }
            Some(_) => {
                self.scratch.frames.push(frame);
                self.skip()?;
            }
        }
        Ok(())
    }

    fn pair_step(&mut self, mut frame: Frame, key_bytes: usize, has_value: bool) -> Outcome<()> {
        let mark = frame.mark;
        match self.field(&mut frame.fresh)? {
            None => self.finish_pair(mark, key_bytes, has_value),
            Some(Field::Key) => {
                let key = self.text_field()?;
                let key_bytes = self.push_key(mark, key_bytes, &key);
                self.resume(frame, Kind::Pair { key_bytes, has_value });
            }
            Some(Field::Value) => {
                self.scratch.rendered.truncate(mark + key_bytes);
                self.resume(frame, Kind::Pair { key_bytes, has_value: true });
                self.begin(false)?;
            }
            Some(_) => {
                self.scratch.frames.push(frame);
                self.skip()?;
            }
        }
        Ok(())
    }

    /// Writes a key before the value that may stand at `mark` already, in place of an earlier key.
    fn push_key(&mut self, mark: usize, old_bytes: usize, key: &Text<'a>) -> usize {
        let out = &mut self.scratch.rendered;
        let start = out.len();
        text::push_json_string(out, key.bytes(&self.scratch.arena));
        out.push(b':');
        let key_bytes = out.len() - start;
        if let Some(pair) = out.get_mut(mark..) {
            pair.rotate_right(key_bytes);
        }
        out.drain(mark + key_bytes..mark + key_bytes + old_bytes);
        key_bytes
    }

    fn finish_pair(&mut self, mark: usize, key_bytes: usize, has_value: bool) {
        if key_bytes == 0 {
            self.push_key(mark, 0, &Text::default());
        }
        if !has_value {
            self.push(&Scalar::Empty, false);
        }
    }

    fn value_step(&mut self, mut frame: Frame, meaning: Meaning) -> Outcome<()> {
        let Some(name) = self.cursor.member(&mut frame.fresh)? else {
            self.finish_value(&frame, meaning);
            return Ok(());
        };
        let field = self.field_of(name)?;
        match meaning {
            _ if is_member(field) => self.any_value_member(frame, meaning, field),
            Meaning::AnyValue(_) => {
                self.scratch.frames.push(frame);
                self.skip()
            }
            Meaning::Unclear => {
                let is_only_newer = name.raw.ends_with(b"Value") || name.raw.ends_with(b"Strindex");
                if self.deepen(b'{') {
                    self.map_member(frame, is_only_newer, name)
                } else {
                    self.resume(frame, Kind::Value(Meaning::AnyValue(None)));
                    self.skip()
                }
            }
            Meaning::Map { .. } => self.map_member(frame, false, name),
        }
    }

    fn map_member(&mut self, frame: Frame, is_only_newer: bool, name: Quoted<'a>) -> Outcome<()> {
        let key = self.text(name)?;
        self.comma();
        text::push_json_string(&mut self.scratch.rendered, key.bytes(&self.scratch.arena));
        self.scratch.rendered.push(b':');
        self.resume(frame, Kind::Value(Meaning::Map { is_only_newer }));
        self.begin_child(true)
    }

    fn finish_value(&mut self, frame: &Frame, meaning: Meaning) {
        match meaning {
            Meaning::Map { is_only_newer: false } => {
                self.close(b'}');
                if !frame.is_quiet {
                    self.warn(Warning::ValueBare);
                }
                return;
            }
            Meaning::Map { is_only_newer: true } => self.forget_map(frame),
            Meaning::AnyValue(Some(_)) => return,
            Meaning::Unclear | Meaning::AnyValue(None) => {}
        }
        if self.scratch.rendered.len() == frame.mark {
            self.push_here(&Scalar::Empty);
        }
    }

    fn forget_map(&mut self, frame: &Frame) {
        self.scratch.rendered.truncate(frame.mark);
        self.value_depth = self.value_depth.saturating_sub(1);
    }

    fn any_value_member(&mut self, frame: Frame, meaning: Meaning, field: Field) -> Outcome<()> {
        if let Meaning::Map { .. } = meaning {
            self.forget_map(&frame);
        }
        let previous = if let Meaning::AnyValue(previous) = meaning { previous } else { None };
        let shape = self.cursor.shape()?;
        if shape == Shape::Null {
            self.resume(frame, Kind::Value(Meaning::AnyValue(previous)));
            return self.cursor.word("null");
        }
        if previous.is_some_and(|previous| previous != field) {
            self.warn(Warning::ValueAmbiguous);
        }
        if let Some(closing) = closing_of(field) && matches!(shape, Shape::Object | Shape::Array) {
            return self.container(frame, field, shape, closing, previous == Some(field));
        }
        self.scratch.rendered.truncate(frame.mark);
        self.scalar_member(frame, field, shape)
    }

    fn scalar_member(&mut self, frame: Frame, field: Field, shape: Shape) -> Outcome<()> {
        let resumed = Kind::Value(Meaning::AnyValue(Some(field)));
        let scalar = match shape {
            Shape::Object if field == Field::IntValue => self.long()?.map(|value| self.long_scalar(value)),
            Shape::Object | Shape::Array => None,
            _ => {
                let token: Token<'a> = self.token(shape)?;
                Some(self.scalar(field, token))
            }
        };
        let Some(scalar) = scalar else {
            self.warn(Warning::ValueType);
            self.resume(frame, resumed);
            return self.begin(true);
        };
        self.push_here(&scalar);
        self.resume(frame, resumed);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "an unsigned Long beyond int64 is kept as a double")]
    fn long_scalar(&mut self, value: i128) -> Scalar<'a> {
        self.warn(Warning::LongObject);
        i64::try_from(value).map_or_else(
            |_| {
                self.warn(Warning::IntAsDouble);
                Scalar::Double(value as f64)
            },
            Scalar::Int,
        )
    }

    /// `arrayValue` or `kvlistValue`. One that comes again continues the list.
    fn container(
        &mut self,
        frame: Frame,
        field: Field,
        shape: Shape,
        closing: u8,
        continues: bool,
    ) -> Outcome<()> {
        let out = &mut self.scratch.rendered;
        if continues && out.last() == Some(&closing) {
            out.pop();
            self.value_depth += 1;
        } else {
            out.truncate(frame.mark);
            if !self.deepen(if closing == b']' { b'[' } else { b'{' }) {
                self.resume(frame, Kind::Value(Meaning::AnyValue(Some(field))));
                return self.skip();
            }
        }
        self.resume(frame, Kind::Value(Meaning::AnyValue(Some(field))));
        self.cursor.open()?;
        if shape == Shape::Array {
            self.warn(Warning::ValueBare);
            self.stack(elements(closing, true), false);
        } else {
            self.stack(Kind::Message { closing }, false);
        }
        Ok(())
    }
}

/// The list in a container that closes so.
fn elements(closing: u8, is_bare: bool) -> Kind {
    if closing == b']' { Kind::Elements { is_bare } } else { Kind::Pairs { is_bare } }
}

fn closing_of(field: Field) -> Option<u8> {
    match field {
        Field::ArrayValue => Some(b']'),
        Field::KvlistValue => Some(b'}'),
        _ => None,
    }
}

fn is_member(field: Field) -> bool {
    closing_of(field).is_some()
        || matches!(
            field,
            Field::StringValue | Field::BoolValue | Field::IntValue | Field::DoubleValue | Field::BytesValue
        )
}
