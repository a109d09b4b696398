//! Errors in protobuf bytes, with their position.

use std::fmt;

use super::{GROUP_DEPTH_MAX, VARINT_BYTES_MAX};

/// Kind of error in the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A varint or a fixed-width number is truncated by the end of the message.
    NumberCut,
    /// A varint has more than ten bytes.
    VarintTooLong,
    /// A length exceeds the rest of the message that holds the field, or 2^31.
    LengthTooLong {
        /// The declared length.
        declared_bytes: u64,
        /// The bytes left in the message.
        left_bytes: usize,
    },
    /// Field number 0, or a tag beyond 32 bits.
    FieldNumber,
    /// Wire type 6 or 7.
    WireTypeUnknown,
    /// The field has another wire type than in the schema.
    WireType {
        /// The tag as sent.
        found: u32,
        /// The tag in the schema.
        expected: u32,
    },
    /// A group end without a group begin.
    GroupNotOpen,
    /// A group without an end.
    GroupNotClosed,
    /// Groups are nested too deep.
    GroupTooDeep,
}

/// An error and its position. Boxed, so that the results of the reading functions, nearly always successes,
/// stay small.
#[derive(Debug)]
pub struct WireError(Box<Details>);

#[derive(Debug)]
struct Details {
    kind: ErrorKind,
    field: &'static str,
    /// Address of the invalid bytes.
    address: usize,
}

impl WireError {
    pub(super) fn new(kind: ErrorKind, field: &'static str, found_at: &[u8]) -> Self {
        Self(Box::new(Details {
            kind,
            field,
            address: found_at.as_ptr().addr(),
        }))
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the path of the field, or of the message that contains it.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.0.field
    }

    /// Returns the offset of the error in `body`.
    #[must_use]
    pub fn offset_in(&self, body: &[u8]) -> usize {
        // The message is a part of `body`. An address costs nothing while there is no error.
        self.0.address.wrapping_sub(body.as_ptr().addr())
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NumberCut => f.write_str("a number is truncated by the end of its message"),
            Self::VarintTooLong => {
                write!(
                    f,
                    "a varint is too long; expected at most {VARINT_BYTES_MAX} bytes"
                )
            }
            Self::LengthTooLong {
                declared_bytes,
                left_bytes,
            } => {
                write!(
                    f,
                    "a field declares {declared_bytes} bytes; {left_bytes} are left in its message"
                )
            }
            Self::FieldNumber => {
                f.write_str("a field number is 0 or has more than 29 bits; expected 1 to 2^29 - 1")
            }
            Self::WireTypeUnknown => f.write_str("a field has wire type 6 or 7; expected 0 to 5"),
            Self::WireType { found, expected } => {
                write!(
                    f,
                    "the field has wire type {}; expected {}",
                    found & 7,
                    expected & 7
                )
            }
            Self::GroupNotOpen => f.write_str("a group end without a group begin"),
            Self::GroupNotClosed => f.write_str("a group without an end"),
            Self::GroupTooDeep => {
                write!(f, "groups are nested deeper than {GROUP_DEPTH_MAX} levels")
            }
        }
    }
}
