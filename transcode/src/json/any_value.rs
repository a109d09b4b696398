//! Objects in the place of an attribute value.
//!
//! An object with at least one member of `AnyValue` is an `AnyValue`, and its last such member counts. Any
//! other object is a bare map and stored as JSON, unless its only member is named `…Value`: that is a type
//! of value newer than this decoder, and its value is empty.

use super::cursor::{Quoted, Shape};
use super::field::Field;
use super::nested::{Frame, Kind, Meaning, elements};
use super::reader::Reader;
use super::scalar::Scalar;
use super::stop::Outcome;
use crate::text;
use crate::visit::{Visitor, Warning};

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads one member, or the end of the object.
    pub fn value_step(&mut self, mut frame: Frame, meaning: Meaning) -> Outcome<()> {
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
                let is_only_newer = self.unescaped_name(name, |name| {
                    name.ends_with(b"Value") || name.ends_with(b"Strindex")
                })?;
                if self.open_bracket(b'{') {
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
            Meaning::Map {
                is_only_newer: false,
            } => {
                self.close(b'}');
                if !frame.is_quiet {
                    self.warn(Warning::ValueBare);
                }
                return;
            }
            Meaning::Map {
                is_only_newer: true,
            } => self.discard_map(frame),
            Meaning::AnyValue(Some(_)) => return,
            Meaning::Unclear | Meaning::AnyValue(None) => {}
        }
        if self.scratch.rendered.len() == frame.mark {
            self.push_here(&Scalar::Empty);
        }
    }

    fn discard_map(&mut self, frame: &Frame) {
        self.scratch.rendered.truncate(frame.mark);
        self.value_depth = self.value_depth.saturating_sub(1);
    }

    fn any_value_member(&mut self, frame: Frame, meaning: Meaning, field: Field) -> Outcome<()> {
        if let Meaning::Map { .. } = meaning {
            self.discard_map(&frame);
        }
        let previous = if let Meaning::AnyValue(previous) = meaning {
            previous
        } else {
            None
        };
        let shape = self.cursor.shape()?;
        if shape == Shape::Null {
            self.resume(frame, Kind::Value(Meaning::AnyValue(previous)));
            return self.cursor.word("null");
        }
        if previous.is_some_and(|previous| previous != field) {
            self.warn(Warning::ValueAmbiguous);
        }
        if let Some(closing) = closing_of(field)
            && matches!(shape, Shape::Object | Shape::Array)
        {
            return self.container(frame, field, shape, closing, previous == Some(field));
        }
        self.scratch.rendered.truncate(frame.mark);
        self.scalar_member(frame, field, shape)
    }

    fn scalar_member(&mut self, frame: Frame, field: Field, shape: Shape) -> Outcome<()> {
        let resumed = Kind::Value(Meaning::AnyValue(Some(field)));
        let scalar = match shape {
            Shape::Object if field == Field::IntValue => {
                self.long()?.map(|value| self.long_scalar(value))
            }
            Shape::Object | Shape::Array => None,
            _ => {
                let token = self.token(shape)?;
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

    #[expect(
        clippy::cast_precision_loss,
        reason = "an unsigned Long beyond int64 is kept as a double"
    )]
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

    /// Reads `arrayValue` or `kvlistValue`. A repeated member continues the list.
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
            if !self.open_bracket(if closing == b']' { b'[' } else { b'{' }) {
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
            Field::StringValue
                | Field::BoolValue
                | Field::IntValue
                | Field::DoubleValue
                | Field::BytesValue
        )
}
