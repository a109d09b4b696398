//! Protobuf's wire format: a cursor over the borrowed bytes of one message.
//!
//! ```text
//! message: field*          field: tag varint (number << 3 | wire type) │ content by wire type
//! 0 varint   1 eight bytes   2 length varint, bytes   3 group begins   4 group ends   5 four bytes
//! ```
//!
//! Keeps: a length is only ever compared, never allocated by; groups are skipped without recursion.

mod flaw;

pub use flaw::{Fault, Flaw};

/// Levels of groups inside groups, all of them unknown to us. Over it: malformed.
pub const GROUP_DEPTH_MAX: usize = 100;
/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;
/// Bytes of the longest field: protobuf's own limit.
const FIELD_BYTES_MAX: u64 = 0x7fff_ffff;

/// The wire types, as they stand in the low three bits of a tag.
pub mod wire_type {
    /// A variable-length integer.
    pub const VARINT: u32 = 0;
    /// Eight bytes.
    pub const I64: u32 = 1;
    /// A length and so many bytes.
    pub const LEN: u32 = 2;
    /// A group begins.
    pub const GROUP_BEGIN: u32 = 3;
    /// A group ends.
    pub const GROUP_END: u32 = 4;
    /// Four bytes.
    pub const I32: u32 = 5;
}

/// A message type: what its fields are called and what their tags are.
#[derive(Debug)]
pub struct Message {
    /// Where it stands in a request, as refusals spell it.
    pub path: &'static str,
    /// The tag and the path of every field that the schema has.
    pub fields: &'static [(u32, &'static str)],
}

impl Message {
    /// The tag that the schema has for this field number, and the field's path.
    fn known(&self, number: u32) -> Option<&'static (u32, &'static str)> {
        self.fields.iter().find(|(tag, _)| tag >> 3 == number)
    }
}

/// What was read, and what is left of the message after it.
type Stepped<'a, T> = Result<(T, &'a [u8]), Flaw>;

/// Reads one message, front to back.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    message: &'static Message,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first field.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8], message: &'static Message) -> Self {
        Self {
            rest: bytes,
            message,
        }
    }

    #[cold]
    fn flaw(&self, fault: Fault) -> Flaw {
        self.flaw_in(self.message.path, fault)
    }

    #[cold]
    fn flaw_in(&self, field: &'static str, fault: Fault) -> Flaw {
        Flaw::new(fault, field, self.rest)
    }

    /// The next field's tag; `None` at the end of the message.
    ///
    /// # Errors
    /// When it is no tag.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<u32>, Flaw> {
        match self.rest {
            [] => Ok(None),
            [tag @ 0x08..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(Some(u32::from(*tag)))
            }
            _ => self.step(Self::long_tag).map(Some),
        }
    }

    /// Takes a step out of line on a copy, so that the cursor itself can live in registers.
    #[inline]
    fn step<T>(&mut self, step: fn(Self) -> Stepped<'a, T>) -> Result<T, Flaw> {
        let (value, rest) = step(*self)?;
        self.rest = rest;
        Ok(value)
    }

    #[inline(never)]
    fn long_tag(mut self) -> Stepped<'a, u32> {
        let before = self;
        match u32::try_from(self.varint()?) {
            Ok(tag) if tag >> 3 != 0 => Ok((tag, self.rest)),
            _ => Err(before.flaw(Fault::FieldNumber)),
        }
    }

    /// A variable-length integer. Longer encodings than needed are legal.
    ///
    /// # Errors
    /// When it is cut or longer than ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Flaw> {
        match self.rest {
            [byte @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            [low, high @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.step(Self::long_varint),
        }
    }

    #[inline(never)]
    fn long_varint(self) -> Stepped<'a, u64> {
        let (mut value, mut rest) = (0, self.rest);
        for place in 0..VARINT_BYTES_MAX {
            let Some((&byte, after)) = rest.split_first() else {
                return Err(self.flaw(Fault::NumberCut));
            };
            value |= u64::from(byte & 0x7f) << (7 * place);
            rest = after;
            if byte < 0x80 {
                return Ok((value, rest));
            }
        }
        Err(self.flaw(Fault::VarintTooLong))
    }

    /// A 64-bit integer that may be negative.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn int64(&mut self) -> Result<i64, Flaw> {
        self.varint().map(u64::cast_signed)
    }

    /// The low 32 bits of a varint, as protobuf reads `uint32`.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn uint32(&mut self) -> Result<u32, Flaw> {
        let [a, b, c, d, ..] = self.varint()?.to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    /// The low 32 bits of a varint, as protobuf reads `int32` and enums.
    ///
    /// # Errors
    /// As [`Self::varint`].
    #[inline]
    pub fn int32(&mut self) -> Result<i32, Flaw> {
        self.uint32().map(u32::cast_signed)
    }

    /// Eight bytes, as an integer.
    ///
    /// # Errors
    /// When they are cut.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, Flaw> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// Four bytes, as an integer.
    ///
    /// # Errors
    /// When they are cut.
    #[inline]
    pub fn fixed32(&mut self) -> Result<u32, Flaw> {
        self.fixed().map(u32::from_le_bytes)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.flaw(Fault::NumberCut));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// A length and so many bytes.
    ///
    /// # Errors
    /// When the message ends before them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Flaw> {
        let before = *self;
        let announced_bytes = self.varint()?;
        if announced_bytes <= FIELD_BYTES_MAX
            && let Ok(length) = usize::try_from(announced_bytes)
            && let Some((field, rest)) = self.rest.split_at_checked(length)
        {
            self.rest = rest;
            return Ok(field);
        }
        Err(before.flaw(Fault::LengthTooLong {
            announced_bytes,
            left_bytes: self.rest.len(),
        }))
    }

    /// The bytes of the next field, if this is its tag and they are few: how most small fields are read.
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

    /// Whether the message has been read to its end.
    #[inline]
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes of the next field with this tag, over whatever lies between.
    ///
    /// # Errors
    /// When something between is malformed.
    #[inline]
    pub fn find(&mut self, wanted: u32) -> Result<Option<&'a [u8]>, Flaw> {
        while let Some(tag) = self.tag()? {
            if tag == wanted {
                return self.bytes().map(Some);
            }
            self.skip(tag)?;
        }
        Ok(None)
    }

    /// Passes over the content of a field that nobody reads; false if the schema does not have it.
    ///
    /// # Errors
    /// When the schema has another wire type for it, or it is malformed.
    #[inline]
    pub fn skip(&mut self, tag: u32) -> Result<bool, Flaw> {
        let (is_known, rest) = self.skipped(tag)?;
        self.rest = rest;
        Ok(is_known)
    }

    #[cold]
    fn skipped(mut self, tag: u32) -> Stepped<'a, bool> {
        let known = self.message.known(tag >> 3);
        match known {
            Some(&(expected, field)) if expected != tag => Err(self.flaw_in(
                field,
                Fault::WireType {
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

    fn skip_content(&mut self, tag: u32) -> Result<(), Flaw> {
        match tag & 7 {
            wire_type::VARINT => self.varint().map(drop),
            wire_type::I64 => self.fixed64().map(drop),
            wire_type::LEN => self.bytes().map(drop),
            wire_type::I32 => self.fixed32().map(drop),
            wire_type::GROUP_END => Err(self.flaw(Fault::GroupNotOpen)),
            _ => Err(self.flaw(Fault::WireTypeUnknown)),
        }
    }

    fn skip_group(&mut self, number: u32) -> Result<(), Flaw> {
        let before = *self;
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let Some(tag) = self.tag()? else {
                return Err(before.flaw(Fault::GroupNotClosed));
            };
            match tag & 7 {
                wire_type::GROUP_BEGIN if open.len() == GROUP_DEPTH_MAX => {
                    return Err(self.flaw(Fault::GroupTooDeep));
                }
                wire_type::GROUP_BEGIN => open.push(tag >> 3),
                wire_type::GROUP_END if tag >> 3 == innermost => drop(open.pop()),
                _ => self.skip_content(tag)?,
            }
        }
        Ok(())
    }
}
