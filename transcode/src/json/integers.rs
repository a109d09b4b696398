//! Reader of integer fields (times, counts, flags, enums), sent as a number, a string, or a Long object.

use super::cursor::Shape;
use super::field::Field;
use super::number::{self, IntegerValue};
use super::reader::Reader;
use super::stop::ReadResult;
use crate::visit::{Visitor, Warning};

/// Content of an integer field.
enum IntegerField {
    /// Null, which means the default.
    Nothing,
    Number(IntegerValue),
    /// Another value, which was skipped.
    NotANumber,
}

const SPAN_KINDS: [&str; 6] = [
    "UNSPECIFIED",
    "INTERNAL",
    "SERVER",
    "CLIENT",
    "PRODUCER",
    "CONSUMER",
];
const STATUS_CODES: [&str; 3] = ["UNSET", "OK", "ERROR"];

impl<V: Visitor> Reader<'_, '_, V> {
    /// Reads nanoseconds since 1970; 0 for null and, with a warning, for a value that is not a time.
    #[inline]
    pub fn time(&mut self) -> ReadResult<u64> {
        if let Some(time) = self.cursor.predicted_time() {
            return Ok(time);
        }
        let position = self.cursor.position();
        if self.cursor.peek() == Some(b'"') {
            let quoted = self.cursor.string()?;
            if let Some(time) = number::digits(quoted.raw) {
                return Ok(time);
            }
            // The general reader handles escapes and other notations.
            self.cursor.return_to(position);
        }
        self.tolerant_time()
    }

    fn tolerant_time(&mut self) -> ReadResult<u64> {
        let nanos = match self.integer()? {
            // ProtoJSON: null is the default value, so it needs no warning
            IntegerField::Nothing => return Ok(0),
            IntegerField::Number(IntegerValue::Exact(nanos)) => u64::try_from(nanos).ok(),
            IntegerField::Number(IntegerValue::Floor(nanos)) => {
                let nanos = u64::try_from(nanos).ok();
                if nanos.is_some() {
                    self.warn(Warning::TimeFractional);
                }
                nanos
            }
            IntegerField::Number(IntegerValue::Huge { .. }) | IntegerField::NotANumber => None,
        };
        if nanos.is_none() {
            self.warn(Warning::TimeUnreadable);
        }
        Ok(nanos.unwrap_or_default())
    }

    /// Reads a count or flags: 32 bits, clamped with a warning.
    #[inline]
    pub fn count(&mut self) -> ReadResult<u32> {
        match self.cursor.predicted_count() {
            Some(count) => Ok(count),
            None => self.tolerant_count(),
        }
    }

    fn tolerant_count(&mut self) -> ReadResult<u32> {
        let (count, warning) = match self.integer()? {
            IntegerField::Nothing => (0, None),
            IntegerField::NotANumber => (0, Some(Warning::FieldType)),
            IntegerField::Number(IntegerValue::Exact(count)) => clamped(count),
            IntegerField::Number(IntegerValue::Floor(count)) => {
                (clamped(count).0, Some(Warning::CountClamped))
            }
            IntegerField::Number(IntegerValue::Huge { negative }) => (
                if negative { 0 } else { u32::MAX },
                Some(Warning::CountClamped),
            ),
        };
        if let Some(warning) = warning {
            self.warn(warning);
        }
        Ok(count)
    }

    /// Reads a span kind.
    pub fn kind(&mut self) -> ReadResult<i32> {
        self.enum_value("SPAN_KIND_", &SPAN_KINDS)
    }

    /// Reads a status code.
    pub fn status_code(&mut self) -> ReadResult<i32> {
        self.enum_value("STATUS_CODE_", &STATUS_CODES)
    }

    /// Reads an enum: a number or, with a warning, its name or its number as text.
    #[inline]
    fn enum_value(&mut self, prefix: &str, names: &[&str]) -> ReadResult<i32> {
        match self
            .cursor
            .predicted_count()
            .and_then(|number| i32::try_from(number).ok())
        {
            Some(number) => Ok(number),
            None => self.tolerant_enum_value(prefix, names),
        }
    }

    fn tolerant_enum_value(&mut self, prefix: &str, names: &[&str]) -> ReadResult<i32> {
        let is_text = self.cursor.peek() == Some(b'"');
        if is_text && let Some(number) = self.enum_name(prefix, names)? {
            self.warn(Warning::EnumName);
            return Ok(number);
        }
        let number = match self.integer()? {
            IntegerField::Nothing => return Ok(0),
            IntegerField::Number(IntegerValue::Exact(number)) => i32::try_from(number).ok(),
            _ => None,
        };
        if number.is_none() {
            self.warn(Warning::EnumUnreadable);
        } else if is_text {
            self.warn(Warning::EnumName);
        }
        Ok(number.unwrap_or_default())
    }

    /// Returns the number of an enum name in any case, with or without its prefix; consumes nothing if it
    /// is not such a name.
    fn enum_name(&mut self, prefix: &str, names: &[&str]) -> ReadResult<Option<i32>> {
        let position = self.cursor.position();
        let quoted = self.cursor.string()?;
        let word = quoted.raw.trim_ascii();
        let word = match word.split_at_checked(prefix.len()) {
            Some((start, rest)) if start.eq_ignore_ascii_case(prefix.as_bytes()) => rest,
            _ => word,
        };
        let number = (0i32..)
            .zip(names)
            .find(|(_, name)| word.eq_ignore_ascii_case(name.as_bytes()));
        if number.is_none() {
            self.cursor.return_to(position);
        }
        Ok(number.map(|(number, _)| number))
    }

    /// Reads an integer in any accepted form.
    fn integer(&mut self) -> ReadResult<IntegerField> {
        match self.cursor.shape()? {
            Shape::Null => self.cursor.word("null").map(|()| IntegerField::Nothing),
            Shape::Number => {
                let literal = self.cursor.number()?;
                Ok(IntegerField::Number(match number::digits(literal) {
                    Some(value) => IntegerValue::Exact(i128::from(value)),
                    None => number::to_integer(literal),
                }))
            }
            Shape::String => self.integer_in_text(),
            Shape::Object => self.long_or_other(),
            _ => self.skip().map(|()| IntegerField::NotANumber),
        }
    }

    fn integer_in_text(&mut self) -> ReadResult<IntegerField> {
        let quoted = self.cursor.string()?;
        let mark = self.scratch.arena.len();
        let text = self.text(quoted)?;
        // Moves the arena out, because `text` borrows from it while `self` reports warnings.
        let arena = std::mem::take(&mut self.scratch.arena);
        let literal = self.number_literal(text.bytes(&arena));
        let integer = literal.map_or(IntegerField::NotANumber, |literal| {
            IntegerField::Number(number::to_integer(literal))
        });
        self.scratch.arena = arena;
        self.scratch.arena.truncate(mark);
        Ok(integer)
    }

    fn long_or_other(&mut self) -> ReadResult<IntegerField> {
        if let Some(value) = self.long()? {
            self.warn(Warning::LongObject);
            return Ok(IntegerField::Number(IntegerValue::Exact(value)));
        }
        self.skip().map(|()| IntegerField::NotANumber)
    }

    /// Reads a `{low, high, unsigned}` object; consumes nothing if it is another object.
    pub fn long(&mut self) -> ReadResult<Option<i128>> {
        let position = self.cursor.position();
        self.cursor.open()?;
        let (mut low, mut high, mut is_unsigned) = (None, None, false);
        let mut is_first = true;
        while let Some(field) = self.field(&mut is_first)? {
            match field {
                Field::Low => low = self.half()?,
                Field::High => high = self.half()?,
                Field::Unsigned => is_unsigned = self.is_true()?,
                _ => self.skip()?,
            }
        }
        let (Some(low), Some(high)) = (low, high) else {
            self.cursor.return_to(position);
            return Ok(None);
        };
        let bits = u64::from(high) << 32 | u64::from(low);
        Ok(Some(if is_unsigned {
            i128::from(bits)
        } else {
            i128::from(bits.cast_signed())
        }))
    }

    /// Reads one half of a Long: 32 bits, signed or not.
    fn half(&mut self) -> ReadResult<Option<u32>> {
        if self.cursor.shape()? != Shape::Number {
            return self.skip().map(|()| None);
        }
        Ok(match number::to_integer(self.cursor.number()?) {
            IntegerValue::Exact(half) => u32::try_from(half)
                // JavaScript libraries write each half as a signed number.
                .or_else(|_| i32::try_from(half).map(i32::cast_unsigned))
                .ok(),
            _ => None,
        })
    }

    fn is_true(&mut self) -> ReadResult<bool> {
        let is_true = self.cursor.shape()? == Shape::True;
        self.skip().map(|()| is_true)
    }
}

fn clamped(count: i128) -> (u32, Option<Warning>) {
    match u32::try_from(count) {
        Ok(count) => (count, None),
        Err(_) if count < 0 => (0, Some(Warning::CountClamped)),
        Err(_) => (u32::MAX, Some(Warning::CountClamped)),
    }
}
