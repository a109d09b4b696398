//! Attributes: a list of keys and values in any order, or, with a warning, a map.

use super::field::Field;
use super::reader::Reader;
use super::stop::Outcome;
use super::strings::Text;
use crate::visit::{Owner, Value, Visitor, Warning};

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads the attributes of `owner`.
    pub fn attributes(&mut self, owner: Owner) -> Outcome<()> {
        match self.cursor.peek() {
            Some(b'[') => self.attribute_list(owner),
            Some(b'{') => self.attribute_map(owner),
            _ => self.wrong_type(),
        }
    }

    fn attribute_list(&mut self, owner: Owner) -> Outcome<()> {
        self.cursor.open()?;
        let mut fresh = true;
        loop {
            let spelling = if owner == Owner::Span {
                self.known_attributes(&mut fresh)?
            } else {
                None
            };
            if !self.element(&mut fresh)? {
                return Ok(());
            }
            let start = self.cursor.offset();
            if let Some((key, value)) = self.cursor.predicted_attribute() {
                self.visitor.attribute(owner, key, value)?;
                let bytes = self.cursor.offset() - start;
                if let Some(spelling) = spelling.filter(|spelling| spelling.len() == bytes) {
                    self.visitor.spelled(spelling, key, Value::Text(value));
                }
            } else if self.cursor.peek() == Some(b'{') {
                self.attribute(owner)?;
            } else {
                self.warn(Warning::AttributeUnreadable);
                self.skip()?;
            }
        }
    }

    /// Reads the following span attributes whose exact bytes were seen before: those were parsed completely
    /// once, so the same bytes mean the same again. Returns the first unknown attribute.
    #[inline]
    fn known_attributes(&mut self, fresh: &mut bool) -> Outcome<Option<&'a [u8]>> {
        while let Some(spelling) = self.cursor.next_compact_attribute(*fresh) {
            if !self.cursor.has_room_for(2) || !self.visitor.attribute_again(spelling)? {
                return Ok(Some(spelling));
            }
            self.cursor.advance(usize::from(!*fresh) + spelling.len());
            *fresh = false;
        }
        Ok(None)
    }

    /// Reads one key and value, in any order and spelling.
    fn attribute(&mut self, owner: Owner) -> Outcome<()> {
        self.cursor.open()?;
        self.scratch.rendered.clear();
        let mark = self.scratch.arena.len();
        let (mut key, mut is_attribute, mut is_other) = (Text::default(), false, false);
        let mut fresh = true;
        while let Some(field) = self.field(&mut fresh)? {
            match field {
                Field::Key => key = self.text_field()?,
                Field::Value => self.render(false)?,
                _ => self.skip()?,
            }
            is_attribute |= matches!(field, Field::Key | Field::Value);
            is_other |= field == Field::Unknown;
        }
        if is_other && !is_attribute {
            self.warn(Warning::AttributeUnreadable);
            return Ok(());
        }
        self.report_attribute(owner, &key, mark)
    }

    fn attribute_map(&mut self, owner: Owner) -> Outcome<()> {
        self.warn(Warning::AttributesAsMap);
        self.cursor.open()?;
        let mut fresh = true;
        while let Some(name) = self.cursor.member(&mut fresh)? {
            let mark = self.scratch.arena.len();
            let key = self.text(name)?;
            self.render(true)?;
            self.report_attribute(owner, &key, mark)?;
        }
        Ok(())
    }

    fn report_attribute(&mut self, owner: Owner, key: &Text<'a>, mark: usize) -> Outcome<()> {
        self.visitor.attribute(
            owner,
            key.bytes(&self.scratch.arena),
            &self.scratch.rendered,
        )?;
        self.scratch.arena.truncate(mark);
        Ok(())
    }
}
