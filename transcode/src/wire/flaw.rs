//! What can be wrong with protobuf's bytes, and where.

use std::fmt;

use super::{GROUP_DEPTH_MAX, VARINT_BYTES_MAX};

/// What is wrong with the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A varint or a fixed number ends with the message.
    NumberCut,
    /// A varint of more than ten bytes.
    VarintTooLong,
    /// A length beyond the end of the message that holds the field, or beyond 2^31.
    LengthTooLong {
        /// What the length says.
        announced_bytes: u64,
        /// What is there.
        left_bytes: usize,
    },
    /// Field number 0, or a tag beyond 32 bits.
    FieldNumber,
    /// Wire type 6 or 7.
    WireTypeUnknown,
    /// The schema has another wire type for this field.
    WireType {
        /// The tag as sent.
        found: u32,
        /// The tag in the schema.
        expected: u32,
    },
    /// An end of a group that is not open.
    GroupNotOpen,
    /// A group without an end.
    GroupNotClosed,
    /// Groups nested too deep.
    GroupTooDeep,
}

/// A fault and where it was found. Boxed, because every step returns one or, nearly always, none.
#[derive(Debug)]
pub struct Flaw(Box<Finding>);

#[derive(Debug)]
struct Finding {
    fault: Fault,
    field: &'static str,
    /// The address of the bytes at fault.
    address: usize,
}

impl Flaw {
    pub(super) fn new(fault: Fault, field: &'static str, found_at: &[u8]) -> Self {
        Self(Box::new(Finding {
            fault,
            field,
            address: found_at.as_ptr().addr(),
        }))
    }

    /// What is wrong.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// The path of the field, or of the message it is in.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.0.field
    }

    /// How far into `body` the fault lies.
    #[must_use]
    pub fn offset_in(&self, body: &[u8]) -> usize {
        self.0.address.wrapping_sub(body.as_ptr().addr())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NumberCut => f.write_str("a number is cut short; its message ends first"),
            Self::VarintTooLong => {
                write!(
                    f,
                    "a varint does not end; at most {VARINT_BYTES_MAX} bytes expected"
                )
            }
            Self::LengthTooLong {
                announced_bytes,
                left_bytes,
            } => {
                write!(
                    f,
                    "a field announces {announced_bytes} bytes; {left_bytes} are left in its message"
                )
            }
            Self::FieldNumber => {
                f.write_str("a field has number 0 or one beyond 29 bits; 1 or more expected")
            }
            Self::WireTypeUnknown => f.write_str("a field has wire type 6 or 7; 0 to 5 expected"),
            Self::WireType { found, expected } => {
                write!(
                    f,
                    "the field has wire type {}; {} expected",
                    found & 7,
                    expected & 7
                )
            }
            Self::GroupNotOpen => f.write_str("a group ends that did not begin"),
            Self::GroupNotClosed => f.write_str("a group begins and does not end"),
            Self::GroupTooDeep => {
                write!(
                    f,
                    "groups are nested deeper than {GROUP_DEPTH_MAX}; at most that expected"
                )
            }
        }
    }
}
