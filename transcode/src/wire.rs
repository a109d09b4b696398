//! Protobuf wire format: a cursor over the borrowed bytes of one message.
//!
//! ```text
//! message: field*          field: tag varint (number << 3 | wire type) │ content by wire type
//! 0 varint   1 eight bytes   2 length varint, bytes   3 group begins   4 group ends   5 four bytes
//! ```
//!
//! Invariant: memory is never allocated from a declared length; groups are skipped without recursion.

mod error;

pub use error::{ErrorKind, WireError};

/// Maximum nesting of groups, which OTLP does not use. Deeper nesting is malformed.
pub const GROUP_DEPTH_MAX: usize = 100;
/// Length of the longest varint.
const VARINT_BYTES_MAX: usize = 10;
/// Length of the longest field: protobuf's own limit.
const FIELD_BYTES_MAX: u64 = 0x7fff_ffff;

/// The wire types, as stored in the low three bits of a tag.
pub mod wire_type {
    /// A variable-length integer.
    pub const VARINT: u32 = 0;
    /// Eight bytes.
    pub const I64: u32 = 1;
    /// A length, then that many bytes.
    pub const LEN: u32 = 2;
    /// A group begins.
    pub const GROUP_BEGIN: u32 = 3;
    /// A group ends.
    pub const GROUP_END: u32 = 4;
    /// Four bytes.
    pub const I32: u32 = 5;
}

/// A message type: the names and tags of its fields.
#[derive(Debug)]
pub struct Message {
    /// Path of the message in a request, for refusals.
    pub path: &'static str,
    /// Tag and path of every field in the schema.
    pub fields: &'static [(u32, &'static str)],
}

impl Message {
    /// Returns the schema's tag for this field number, and the field's path.
    fn known(&self, number: u32) -> Option<&'static (u32, &'static str)> {
        self.fields.iter().find(|(tag, _)| tag >> 3 == number)
    }
}

/// A value, and the rest of the message after it.
type WithRest<'a, T> = Result<(T, &'a [u8]), WireError>;

/// Reads one message front to back.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    message: &'static Message,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor before the first field.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], message: &'static Message) -> Self {
        Self {
            rest: bytes,
            message,
        }
    }

    #[cold]
    fn error(&self, kind: ErrorKind) -> WireError {
        self.error_in(self.message.path, kind)
    }

    #[cold]
    fn error_in(&self, field: &'static str, kind: ErrorKind) -> WireError {
        WireError::new(kind, field, self.rest)
    }

    /// Returns the next field's tag; `None` at the end of the message.
    ///
    /// # Errors
    /// If the bytes are not a valid tag.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<u32>, WireError> {
        match self.rest {
            [] => Ok(None),
            // A tag of one byte. Below 0x08 its field number would be 0.
            [tag @ 0x08..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(Some(u32::from(*tag)))
            }
            _ => self.step(Self::long_tag).map(Some),
        }
    }

    /// Runs a rare step in a separate function on a copy of the cursor, so that the cursor can stay in registers.
    #[inline]
    fn step<T>(&mut self, step: fn(Self) -> WithRest<'a, T>) -> Result<T, WireError> {
        let (value, rest) = step(*self)?;
        self.rest = rest;
        Ok(value)
    }

    #[inline(never)]
    fn long_tag(mut self) -> WithRest<'a, u32> {
        // An error names the beginning of the tag, not the position behind it.
        let before = self;
        match u32::try_from(self.varint()?) {
            Ok(tag) if tag >> 3 != 0 => Ok((tag, self.rest)),
            _ => Err(before.error(ErrorKind::FieldNumber)),
        }
    }

    /// Reads a variable-length integer. Longer encodings than necessary are valid.
    ///
    /// # Errors
    /// If it is truncated or longer than ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest {
            [byte @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            // Two bytes: lengths of up to 16 KiB, the most common case after one byte.
            [low, high @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.step(Self::long_varint),
        }
    }

    #[inline(never)]
    fn long_varint(self) -> WithRest<'a, u64> {
        let (mut value, mut rest) = (0, self.rest);
        for place in 0..VARINT_BYTES_MAX {
            let Some((&byte, after)) = rest.split_first() else {
                return Err(self.error(ErrorKind::NumberCut));
            };
            // Bits beyond the 64th are lost, as in other protobuf decoders.
            value |= u64::from(byte & 0x7f) << (7 * place);
            rest = after;
            if byte < 0x80 {
                return Ok((value, rest));
            }
        }
        Err(self.error(ErrorKind::VarintTooLong))
    }

    /// Reads a 64-bit integer that may be negative.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn int64(&mut self) -> Result<i64, WireError> {
        self.varint().map(u64::cast_signed)
    }

    /// Reads the low 32 bits of a varint, as protobuf does for `uint32`.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn uint32(&mut self) -> Result<u32, WireError> {
        let [a, b, c, d, ..] = self.varint()?.to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    /// Reads the low 32 bits of a varint, as protobuf does for `int32` and enums.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn int32(&mut self) -> Result<i32, WireError> {
        self.uint32().map(u32::cast_signed)
    }

    /// Reads eight bytes as an integer.
    ///
    /// # Errors
    /// If they are truncated.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, WireError> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// Reads four bytes as an integer.
    ///
    /// # Errors
    /// If they are truncated.
    #[inline]
    pub fn fixed32(&mut self) -> Result<u32, WireError> {
        self.fixed().map(u32::from_le_bytes)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.error(ErrorKind::NumberCut));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// Reads a length and that many bytes.
    ///
    /// # Errors
    /// If the message ends before them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        // An error names the position of the length, not the position behind it.
        let before = *self;
        let declared_bytes = self.varint()?;
        if declared_bytes <= FIELD_BYTES_MAX
            && let Ok(length) = usize::try_from(declared_bytes)
            && let Some((field, rest)) = self.rest.split_at_checked(length)
        {
            self.rest = rest;
            return Ok(field);
        }
        Err(before.error(ErrorKind::LengthTooLong {
            declared_bytes,
            left_bytes: self.rest.len(),
        }))
    }

    /// Fast path for most small fields: returns the bytes of the next field if it has this tag and is short.
    #[inline]
    #[must_use]
    pub fn short(&mut self, wanted: u32) -> Option<&'a [u8]> {
        match self.rest {
            [tag, length @ 0..0x80, rest @ ..] if u32::from(*tag) == wanted => {
                let (field, rest) = rest.split_at_checked(usize::from(*length))?;
                self.rest = rest;
                Some(field)
            }
            _ => None,
        }
    }

    /// Returns whether the message was read to its end.
    #[inline]
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes of the next field with this tag, skipping the fields before it.
    ///
    /// # Errors
    /// If a skipped field is malformed.
    #[inline]
    pub fn find(&mut self, wanted: u32) -> Result<Option<&'a [u8]>, WireError> {
        while let Some(tag) = self.tag()? {
            if tag == wanted {
                return self.bytes().map(Some);
            }
            self.skip(tag)?;
        }
        Ok(None)
    }

    /// Skips the content of a field; returns false if the schema does not have the field.
    ///
    /// # Errors
    /// If the field has another wire type than in the schema, or is malformed.
    #[inline]
    pub fn skip(&mut self, tag: u32) -> Result<bool, WireError> {
        let (is_known, rest) = self.skipped(tag)?;
        self.rest = rest;
        Ok(is_known)
    }

    #[cold]
    fn skipped(mut self, tag: u32) -> WithRest<'a, bool> {
        let known = self.message.known(tag >> 3);
        match known {
            // A known field with another wire type usually means that the body is another signal, such as logs.
            Some(&(expected, field)) if expected != tag => Err(self.error_in(
                field,
                ErrorKind::WireType {
                    found: tag,
                    expected,
                },
            )),
            _ if tag & 7 == wire_type::GROUP_BEGIN => {
                self.skip_group(tag >> 3).map(|()| (false, self.rest))
            }
            _ => self
                .skip_content(tag)
                .map(|()| (known.is_some(), self.rest)),
        }
    }

    fn skip_content(&mut self, tag: u32) -> Result<(), WireError> {
        match tag & 7 {
            wire_type::VARINT => self.varint().map(drop),
            wire_type::I64 => self.fixed64().map(drop),
            wire_type::LEN => self.bytes().map(drop),
            wire_type::I32 => self.fixed32().map(drop),
            wire_type::GROUP_END => Err(self.error(ErrorKind::GroupNotOpen)),
            _ => Err(self.error(ErrorKind::WireTypeUnknown)),
        }
    }

    fn skip_group(&mut self, number: u32) -> Result<(), WireError> {
        let before = *self;
        // An explicit stack, so that nested groups cannot exhaust the call stack.
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let Some(tag) = self.tag()? else {
                return Err(before.error(ErrorKind::GroupNotClosed));
            };
            match tag & 7 {
                wire_type::GROUP_BEGIN if open.len() == GROUP_DEPTH_MAX => {
                    return Err(self.error(ErrorKind::GroupTooDeep));
                }
                wire_type::GROUP_BEGIN => open.push(tag >> 3),
                wire_type::GROUP_END if tag >> 3 == innermost => drop(open.pop()),
                _ => self.skip_content(tag)?,
            }
        }
        Ok(())
    }
}
