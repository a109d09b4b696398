//! Attributes: a list of keys and values in any order, or, with a warning, a map.

use super::field::Field;
use super::reader::Reader;
use super::stop::ReadResult;
use super::strings::Text;
use crate::visit::{Owner, Value, Visitor, Warning};

impl<'a, V: Visitor> Reader<'a, '_, V> {
    /// Reads the attributes of `owner`.
    pub fn attributes(&mut self, owner: Owner) -> ReadResult<()> {
        match self.cursor.peek() {
            Some(b'[') => self.attribute_list(owner),
            Some(b'{') => self.attribute_map(owner),
            _ => self.wrong_type(),
        }
    }

    fn attribute_list(&mut self, owner: Owner) -> ReadResult<()> {
        self.cursor.open()?;
        let mut is_first = true;
        loop {
            // The visitor caches only attributes of spans.
            let encoded = if owner == Owner::Span {
                self.known_attributes(&mut is_first)?
            } else {
                None
            };
            if !self.element(&mut is_first)? {
                return Ok(());
            }
            let start = self.cursor.offset();
            if let Some((key, value)) = self.cursor.predicted_attribute() {
                self.visitor.attribute(owner, key, value)?;
                let bytes = self.cursor.offset() - start;
                // `encoded` ends at the first `}}`, which may be inside a key: parsing must have ended there
                // too.
                if let Some(encoded) = encoded.filter(|encoded| encoded.len() == bytes) {
                    self.visitor
                        .cache_attribute(encoded, key, Value::Text(value));
                }
            } else if self.cursor.peek() == Some(b'{') {
                self.attribute(owner)?;
            } else {
                self.warn(Warning::AttributeUnreadable);
                self.skip()?;
            }
        }
    }

    /// Adds the following span attributes from the cache, until the exact bytes of an attribute are not cached. Returns
    /// the bytes of that attribute.
    #[inline]
    fn known_attributes(&mut self, is_first: &mut bool) -> ReadResult<Option<&'a [u8]>> {
        while let Some(encoded) = self.cursor.next_compact_attribute(*is_first) {
            // An attribute opens two levels, itself and its value; the nesting limit applies to cached
            // attributes too.
            if !self.cursor.can_nest(2) || !self.visitor.repeated_attribute(encoded)? {
                return Ok(Some(encoded));
            }
            self.cursor.advance(usize::from(!*is_first) + encoded.len());
            *is_first = false;
        }
        Ok(None)
    }

    /// Reads one key and value, in any order and notation.
    fn attribute(&mut self, owner: Owner) -> ReadResult<()> {
        self.cursor.open()?;
        // An attribute without a value must not get the value of the attribute before it.
        self.scratch.rendered.clear();
        let mark = self.scratch.arena.len();
        let (mut key, mut is_attribute, mut is_other) = (Text::default(), false, false);
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::Key => key = self.text_field()?,
                Field::Value => self.render(false)?,
                _ => self.skip()?,
            }
            is_attribute |= matches!(field, Field::Key | Field::Value);
            is_other |= field == Field::Unknown;
        }
        // `{}` passes: an attribute whose fields have their defaults, as in protobuf.
        if is_other && !is_attribute {
            self.warn(Warning::AttributeUnreadable);
            return Ok(());
        }
        self.report_attribute(owner, &key, mark)
    }

    fn attribute_map(&mut self, owner: Owner) -> ReadResult<()> {
        self.warn(Warning::AttributesAsMap);
        self.cursor.open()?;
        let mut is_first = true;
        while let Some(name) = self.cursor.member(&mut is_first)? {
            let mark = self.scratch.arena.len();
            let key = self.text(name)?;
            self.render(true)?;
            self.report_attribute(owner, &key, mark)?;
        }
        Ok(())
    }

    fn report_attribute(&mut self, owner: Owner, key: &Text<'a>, mark: usize) -> ReadResult<()> {
        self.visitor.attribute(
            owner,
            key.bytes(&self.scratch.arena),
            &self.scratch.rendered,
        )?;
        self.scratch.arena.truncate(mark);
        Ok(())
    }
}
