//! Attribute values with any nesting, as stored text: a state machine with an explicit stack.

use super::cursor::Shape;
use super::field::Field;
use super::reader::Reader;
use super::scalar::Scalar;
use super::stop::Outcome;
use super::strings::Text;
use crate::text;
use crate::visit::{Visitor, Warning};

/// A container of the body that is open while a value is rendered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: Kind,
    /// Whether no member or element was read yet.
    pub fresh: bool,
    /// Start of its text in the rendered value.
    pub mark: usize,
    /// Whether a warning for it was already given.
    pub is_quiet: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// An object in the place of a value.
    Value(Meaning),
    /// The elements of an array; `is_bare` if no enclosing message writes the brackets.
    Elements { is_bare: bool },
    /// The elements of a list of keys and values.
    Pairs { is_bare: bool },
    /// The object around either list, `{"values": […]}`.
    Message { closing: u8 },
    /// A key and a value; `key_bytes` bytes of key are written, the value after them.
    Pair { key_bytes: usize, has_value: bool },
}

/// Type of an object in the place of a value, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    Unclear,
    AnyValue(Option<Field>),
    Map { is_only_newer: bool },
}

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Renders the next value. In a map of attributes (`is_quiet`) it may be bare.
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
                Kind::Pair {
                    key_bytes,
                    has_value,
                } => self.pair_step(frame, key_bytes, has_value)?,
            }
        }
        Ok(())
    }

    /// Begins a value: writes a scalar, or opens a container.
    pub fn begin(&mut self, is_quiet: bool) -> Outcome<()> {
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

    /// Begins a nested value, after counting it against the node limit.
    pub fn begin_child(&mut self, is_quiet: bool) -> Outcome<()> {
        self.visitor.spend_nodes(1)?;
        self.begin(is_quiet)
    }

    /// Begins a list that stands without its message.
    fn list(&mut self, kind: Kind, bracket: u8) -> Outcome<()> {
        if !self.open_bracket(bracket) {
            return self.skip();
        }
        self.cursor.open()?;
        self.stack(kind, true);
        Ok(())
    }

    pub fn stack(&mut self, kind: Kind, is_quiet: bool) {
        let mark = self.scratch.rendered.len();
        self.scratch.frames.push(Frame {
            kind,
            fresh: true,
            mark,
            is_quiet,
        });
    }

    pub fn resume(&mut self, frame: Frame, kind: Kind) {
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
        if !matches!(self.scratch.rendered.last(), Some(b'[' | b'{')) {
            self.scratch.rendered.push(b',');
        }
    }

    /// Writes a scalar: as JSON if a container is open around it.
    pub fn push_here(&mut self, scalar: &Scalar<'a>) {
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
        self.stack(
            Kind::Pair {
                key_bytes: 0,
                has_value: false,
            },
            false,
        );
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
                self.resume(
                    frame,
                    Kind::Pair {
                        key_bytes,
                        has_value,
                    },
                );
            }
            Some(Field::Value) => {
                self.scratch.rendered.truncate(mark + key_bytes);
                self.resume(
                    frame,
                    Kind::Pair {
                        key_bytes,
                        has_value: true,
                    },
                );
                self.begin(false)?;
            }
            Some(_) => {
                self.scratch.frames.push(frame);
                self.skip()?;
            }
        }
        Ok(())
    }

    /// Writes a key before the value, which may already stand at `mark`, and replaces an earlier key.
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
}

/// Returns the kind of list in a container with this closing bracket.
pub(super) fn elements(closing: u8, is_bare: bool) -> Kind {
    if closing == b']' {
        Kind::Elements { is_bare }
    } else {
        Kind::Pairs { is_bare }
    }
}
