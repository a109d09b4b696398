//! Converter of nested attribute values to stored text: a state machine with an explicit stack instead of recursion.

use super::cursor::Shape;
use super::field::Field;
use super::reader::Reader;
use super::scalar::Scalar;
use super::stop::ReadResult;
use super::strings::Text;
use crate::text;
use crate::visit::{Visitor, Warning};

/// An open container of the value being converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: Kind,
    /// Whether no member or element was read yet.
    pub is_first: bool,
    /// Offset at which the text of this container starts in the converted value.
    pub mark: usize,
    /// Whether a warning about this container was already reported.
    pub is_quiet: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// An object in the position of an attribute value.
    Value(ObjectType),
    /// An array. `is_bare` if it has no enclosing `arrayValue` object, which would write the brackets.
    Elements { is_bare: bool },
    /// A list of keys and values. `is_bare` if it has no enclosing `kvlistValue` object.
    Pairs { is_bare: bool },
    /// The `{"values": […]}` object around an array or a list of keys and values.
    Message { closing: u8 },
    /// One `{"key": …, "value": …}` element. `key_bytes` is the length of the key's text, which precedes the value.
    Pair { key_bytes: usize, has_value: bool },
}

/// Type of an object in the position of an attribute value. The members read so far decide it, so it starts as
/// `Unknown`.
#[derive(Clone, Copy, Debug)]
pub(super) enum ObjectType {
    Unknown,
    AnyValue(Option<Field>),
    Map { has_only_newer_member: bool },
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Converts the next value to stored text. `is_quiet` suppresses the warning about a bare value: attributes sent as
    /// a map already have a warning.
    pub fn render(&mut self, is_quiet: bool) -> ReadResult<()> {
        self.scratch.rendered.clear();
        self.value_depth = 0;
        self.begin(is_quiet)?;
        // Each step pops the innermost container, and pushes it again unless the container ends in this step.
        while let Some(frame) = self.scratch.frames.pop() {
            match frame.kind {
                Kind::Value(object_type) => self.value_step(frame, object_type)?,
                Kind::Elements { is_bare } => self.elements_step(frame, is_bare)?,
                Kind::Pairs { is_bare } => self.pairs_step(frame, is_bare)?,
                Kind::Message { closing } => self.message_step(frame, closing)?,
                Kind::Pair {
                    key_bytes,
                    has_value,
                } => self.pair_step(frame, key_bytes, has_value)?,
            }
        }
        Ok(())
    }

    /// Begins a value: writes a scalar, or opens a container.
    pub fn begin(&mut self, is_quiet: bool) -> ReadResult<()> {
        let shape = self.cursor.shape()?;
        if shape == Shape::Object {
            self.cursor.open()?;
            self.open_frame(Kind::Value(ObjectType::Unknown), is_quiet);
            return Ok(());
        }
        // Null is an absent value, not a bare one.
        if !is_quiet && shape != Shape::Null {
            self.warn(Warning::ValueBare);
        }
        if shape == Shape::Array {
            return self.list(Kind::Elements { is_bare: true }, b'[');
        }
        let token = self.token(shape)?;
        let scalar = self.bare(token);
        self.push_scalar(&scalar);
        Ok(())
    }

    /// Begins a nested value, after counting it against the node limit.
    pub fn begin_child(&mut self, is_quiet: bool) -> ReadResult<()> {
        self.visitor.spend_nodes(1)?;
        self.begin(is_quiet)
    }

    /// Begins a list that has no enclosing `{"values": …}` object.
    fn list(&mut self, kind: Kind, bracket: u8) -> ReadResult<()> {
        if !self.open_bracket(bracket) {
            return self.skip();
        }
        self.cursor.open()?;
        self.open_frame(kind, true);
        Ok(())
    }

    pub fn open_frame(&mut self, kind: Kind, is_quiet: bool) {
        let mark = self.scratch.rendered.len();
        self.scratch.frames.push(Frame {
            kind,
            is_first: true,
            mark,
            is_quiet,
        });
    }

    pub fn continue_frame(&mut self, frame: Frame, kind: Kind) {
        self.scratch.frames.push(Frame { kind, ..frame });
    }

    /// Writes an opening bracket, or a marker if the nesting limit is reached. Returns whether it wrote a
    /// bracket.
    pub fn open_bracket(&mut self, bracket: u8) -> bool {
        if self.value_depth >= self.value_depth_max {
            self.warn(Warning::ValueTooDeep);
            self.scratch.rendered.extend_from_slice(text::TOO_DEEP);
            return false;
        }
        self.value_depth += 1;
        self.scratch.rendered.push(bracket);
        true
    }

    pub fn close(&mut self, bracket: u8) {
        self.value_depth = self.value_depth.saturating_sub(1);
        self.scratch.rendered.push(bracket);
    }

    pub fn comma(&mut self) {
        // No value ends with an opening bracket, so the last byte tells whether this element is the first.
        if !matches!(self.scratch.rendered.last(), Some(b'[' | b'{')) {
            self.scratch.rendered.push(b',');
        }
    }

    /// Writes a scalar: as JSON inside a container, as plain text otherwise.
    pub fn push_scalar(&mut self, scalar: &Scalar<'a>) {
        let is_stored_text = self.scratch.frames.is_empty();
        self.push(scalar, is_stored_text);
    }

    fn elements_step(&mut self, mut frame: Frame, is_bare: bool) -> ReadResult<()> {
        if !self.cursor.element(&mut frame.is_first)? {
            if is_bare {
                self.close(b']');
            }
            return Ok(());
        }
        self.comma();
        self.scratch.frames.push(frame);
        self.begin_child(is_bare)
    }

    fn pairs_step(&mut self, mut frame: Frame, is_bare: bool) -> ReadResult<()> {
        if !self.element(&mut frame.is_first)? {
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
        self.open_frame(
            Kind::Pair {
                key_bytes: 0,
                has_value: false,
            },
            false,
        );
        Ok(())
    }

    fn message_step(&mut self, mut frame: Frame, closing: u8) -> ReadResult<()> {
        match self.field(&mut frame.is_first)? {
            None => self.close(closing),
            Some(Field::Values) => {
                self.scratch.frames.push(frame);
                if self.opens_list()? {
                    self.open_frame(elements(closing, false), false);
                }
            }
            Some(_) => {
                self.scratch.frames.push(frame);
                self.skip()?;
            }
        }
        Ok(())
    }

    fn pair_step(&mut self, mut frame: Frame, key_bytes: usize, has_value: bool) -> ReadResult<()> {
        let mark = frame.mark;
        match self.field(&mut frame.is_first)? {
            None => self.finish_pair(mark, key_bytes, has_value),
            Some(Field::Key) => {
                let key = self.text_field()?;
                let key_bytes = self.push_key(mark, key_bytes, &key);
                self.continue_frame(
                    frame,
                    Kind::Pair {
                        key_bytes,
                        has_value,
                    },
                );
            }
            Some(Field::Value) => {
                // A repeated value replaces the earlier one.
                self.scratch.rendered.truncate(mark + key_bytes);
                self.continue_frame(
                    frame,
                    Kind::Pair {
                        key_bytes,
                        has_value: true,
                    },
                );
                // Not `begin_child`: the pair was counted before its key was read.
                self.begin(false)?;
            }
            Some(_) => {
                self.scratch.frames.push(frame);
                self.skip()?;
            }
        }
        Ok(())
    }

    /// Writes a key before its value, which may already be written at `mark`. Replaces an earlier key of the element.
    fn push_key(&mut self, mark: usize, old_bytes: usize, key: &Text<'a>) -> usize {
        let out = &mut self.scratch.rendered;
        let start = out.len();
        text::push_json_string(out, key.bytes(&self.scratch.arena));
        out.push(b':');
        let key_bytes = out.len() - start;
        if let Some(pair) = out.get_mut(mark..) {
            // In the input the value may precede the key: move the key, which was just appended, before the value.
            pair.rotate_right(key_bytes);
        }
        // A repeated key replaces the earlier one.
        out.drain(mark + key_bytes..mark + key_bytes + old_bytes);
        key_bytes
    }

    fn finish_pair(&mut self, mark: usize, key_bytes: usize, has_value: bool) {
        // OTLP allows a pair without a key, but a member of a JSON object needs a name.
        if key_bytes == 0 {
            self.push_key(mark, 0, &Text::default());
        }
        if !has_value {
            self.push(&Scalar::Empty, false);
        }
    }
}

/// Returns the kind of list in a container with this closing bracket.
pub(super) fn elements(closing: u8, is_bare: bool) -> Kind {
    if closing == b']' {
        Kind::Elements { is_bare }
    } else {
        Kind::Pairs { is_bare }
    }
}
