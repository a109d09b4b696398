//! Reader of JSON objects in the position of an attribute value.
//!
//! An object with at least one member of `AnyValue` is an `AnyValue`; if it has several, the last member counts. Any
//! other object is a bare map, stored as JSON. The exception is an object whose only member is named `…Value`: its
//! value type was probably added to OTLP after this decoder was written, so the stored value is empty.

use super::cursor::{Quoted, Shape};
use super::field::Field;
use super::nested::{Frame, Kind, ObjectType, elements};
use super::reader::Reader;
use super::scalar::Scalar;
use super::stop::ReadResult;
use crate::text;
use crate::visit::{Visitor, Warning};

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads one member, or the end of the object.
    pub fn value_step(&mut self, mut frame: Frame, object_type: ObjectType) -> ReadResult<()> {
        let Some(name) = self.cursor.member(&mut frame.is_first)? else {
            self.finish_value(&frame, object_type);
            return Ok(());
        };
        let field = self.field_of(name)?;
        match object_type {
            // tested first, because one known member makes any object an `AnyValue`
            _ if is_member(field) => self.any_value_member(frame, object_type, field),
            ObjectType::AnyValue(_) => {
                self.scratch.frames.push(frame);
                self.skip()
            }
            ObjectType::Unknown => {
                let has_only_newer_member = self.unescaped_name(name, |name| {
                    // `…Strindex` refers to a string table, which a trace request does not have.
                    name.ends_with(b"Value") || name.ends_with(b"Strindex")
                })?;
                if self.open_bracket(b'{') {
                    self.map_member(frame, has_only_newer_member, name)
                } else {
                    // Too deep: the marker is written already, and the members are only checked.
                    self.continue_frame(frame, Kind::Value(ObjectType::AnyValue(None)));
                    self.skip()
                }
            }
            ObjectType::Map { .. } => self.map_member(frame, false, name),
        }
    }

    fn map_member(
        &mut self,
        frame: Frame,
        has_only_newer_member: bool,
        name: Quoted<'a>,
    ) -> ReadResult<()> {
        let key = self.text(name)?;
        self.comma();
        text::push_json_string(&mut self.scratch.rendered, key.bytes(&self.scratch.arena));
        self.scratch.rendered.push(b':');
        self.continue_frame(
            frame,
            Kind::Value(ObjectType::Map {
                has_only_newer_member,
            }),
        );
        self.begin_child(true)
    }

    fn finish_value(&mut self, frame: &Frame, object_type: ObjectType) {
        match object_type {
            ObjectType::Map {
                has_only_newer_member: false,
            } => {
                self.close(b'}');
                if !frame.is_quiet {
                    self.warn(Warning::ValueBare);
                }
                return;
            }
            ObjectType::Map {
                has_only_newer_member: true,
            } => self.discard_map(frame),
            ObjectType::AnyValue(Some(_)) => return,
            ObjectType::Unknown | ObjectType::AnyValue(None) => {}
        }
        // None of the members above wrote anything, so the value is empty.
        if self.scratch.rendered.len() == frame.mark {
            self.push_scalar(&Scalar::Empty);
        }
    }

    fn discard_map(&mut self, frame: &Frame) {
        self.scratch.rendered.truncate(frame.mark);
        self.value_depth = self.value_depth.saturating_sub(1);
    }

    fn any_value_member(
        &mut self,
        frame: Frame,
        object_type: ObjectType,
        field: Field,
    ) -> ReadResult<()> {
        if let ObjectType::Map { .. } = object_type {
            // The members so far were unknown fields, not the entries of a map.
            self.discard_map(&frame);
        }
        let previous = if let ObjectType::AnyValue(previous) = object_type {
            previous
        } else {
            None
        };
        let shape = self.cursor.shape()?;
        // ProtoJSON: a null member is an absent member, so it does not replace an earlier one.
        if shape == Shape::Null {
            self.continue_frame(frame, Kind::Value(ObjectType::AnyValue(previous)));
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

    fn scalar_member(&mut self, frame: Frame, field: Field, shape: Shape) -> ReadResult<()> {
        let resumed = Kind::Value(ObjectType::AnyValue(Some(field)));
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
            self.continue_frame(frame, resumed);
            return self.begin(true);
        };
        self.push_scalar(&scalar);
        self.continue_frame(frame, resumed);
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
    ) -> ReadResult<()> {
        let out = &mut self.scratch.rendered;
        // At the nesting limit a marker was written instead of a list, and cannot be continued.
        if continues && out.last() == Some(&closing) {
            // Reopens the list by removing its closing bracket.
            out.pop();
            self.value_depth += 1;
        } else {
            out.truncate(frame.mark);
            if !self.open_bracket(if closing == b']' { b'[' } else { b'{' }) {
                self.continue_frame(frame, Kind::Value(ObjectType::AnyValue(Some(field))));
                return self.skip();
            }
        }
        self.continue_frame(frame, Kind::Value(ObjectType::AnyValue(Some(field))));
        self.cursor.open()?;
        if shape == Shape::Array {
            self.warn(Warning::ValueBare);
            self.open_frame(elements(closing, true), false);
        } else {
            self.open_frame(Kind::Message { closing }, false);
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
