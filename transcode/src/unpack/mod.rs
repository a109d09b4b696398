//! The way in: a body as it came off the wire, its codings undone, whole or not at all.
//!
//! End of stream, checksum and length are required where the format has them; what follows the end
//! is malformed. Output is capped while it is produced. One limit lies in a format itself: framed
//! snappy has no end mark, so a body cut between two chunks is caught by the decoder, not here.

mod gzip;
mod inflate;
mod lz4;
mod room;
mod snappy;
mod zstd;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::visit::Warning;
use room::Room;

/// Codings that one body may be wrapped in.
const STACKED_MAX: usize = 2;

/// A coding that we undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One or several gzip members.
    Gzip,
    /// One zlib or raw deflate stream, told apart by the zlib header.
    Deflate,
    /// One or several zstd frames.
    Zstd,
    /// One raw snappy block. Framed data is recognised by its stream identifier.
    Snappy,
    /// Framed snappy.
    SnappyFramed,
    /// One or several lz4 frames.
    Lz4,
}

impl Encoding {
    /// The coding of this lower-case name; `None` if we do not undo it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" | "zlib" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            "snappy" => Some(Self::Snappy),
            "x-snappy-framed" => Some(Self::SnappyFramed),
            "lz4" => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Whether the body starts as this coding must; `None` if nothing can be told by its start.
    fn starts(self, body: &[u8]) -> Option<bool> {
        match self {
            Self::Gzip => Some(body.starts_with(&gzip::MAGIC)),
            Self::Zstd => Some(zstd::starts(body)),
            Self::SnappyFramed => Some(body.starts_with(&snappy::STREAM_IDENTIFIER)),
            Self::Lz4 => Some(lz4::starts(body)),
            Self::Deflate | Self::Snappy => None,
        }
    }
}

/// What the body is declared to be once unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json` or `application/x-ndjson`.
    Json,
}

impl Expect {
    /// Whether the body is plainly of this type as it stands, so that no coding is left to undo.
    fn is_met_by(self, body: &[u8]) -> bool {
        match self {
            Self::Protobuf => !body.is_empty() && is_resource_spans_to_the_end(body),
            Self::Json => body.trim_ascii_start().starts_with(b"{"),
        }
    }
}

/// Only `resource_spans` (field 1, length-delimited) may stand at the top of a request.
fn is_resource_spans_to_the_end(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix(b"\x0a").and_then(skip_length_delimited) else {
            return false;
        };
        rest = after;
    }
    true
}

fn skip_length_delimited(mut rest: &[u8]) -> Option<&[u8]> {
    let mut length = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        length |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return rest.get(usize::try_from(length).ok()?..);
        }
    }
    None
}

/// A body with its codings undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpacked<'a> {
    /// The plain body.
    pub body: &'a [u8],
    /// What the sender declared wrongly, if we could read on.
    pub warning: Option<Warning>,
}

/// Decoders and their output, reused from body to body. One per thread.
#[derive(Default)]
pub struct Buffers {
    engines: Engines,
    outer: Room,
    inner: Room,
}

impl Buffers {
    /// Bytes held between bodies.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.outer.held_bytes() + self.inner.held_bytes() + self.engines.zstd.held_bytes()
    }
}

#[derive(Default)]
struct Engines {
    gzip: gzip::Decoder,
    zstd: zstd::Decoder,
}

impl Engines {
    fn decode(
        &mut self,
        encoding: Encoding,
        body: &[u8],
        limits: &Limits,
        room: &mut Room,
    ) -> Result<(), Refusal> {
        room.open(limits.body_bytes_max);
        match encoding {
            Encoding::Gzip => self.gzip.decode(body, limits.members_max, room),
            Encoding::Deflate => self.gzip.decode_deflate(body, room),
            Encoding::Zstd => self.zstd.decode(body, limits.members_max, room),
            Encoding::Snappy => snappy::decode(body, room),
            Encoding::SnappyFramed => snappy::decode_framed(body, room),
            Encoding::Lz4 => lz4::decode(body, limits.members_max, room),
        }?;
        room.close()
    }

    /// Undoes one coding, unless the body turns out to be what it should become.
    fn undo<'a>(
        &mut self,
        encoding: Encoding,
        body: &'a [u8],
        expect: Expect,
        limits: &Limits,
        room: &'a mut Room,
    ) -> Result<Unpacked<'a>, Refusal> {
        if encoding.starts(body) == Some(false) && expect.is_met_by(body) {
            return Ok(Unpacked {
                body,
                warning: Some(Warning::EncodingUnneeded),
            });
        }
        self.decode(encoding, body, limits, room)?;
        Ok(Unpacked {
            body: room.filled(),
            warning: None,
        })
    }
}

/// Undoes `encodings` (in the order they were applied, without identity). A gzip body that does not
/// say so is recognised by its magic, which is neither protobuf nor JSON.
///
/// # Errors
/// Malformed if a stream is cut, corrupt, followed by anything or has too many members; too large
/// if the body has more bytes than the limit, before or after.
pub fn unpack<'a>(
    body: &'a [u8],
    encodings: &[Encoding],
    expect: Expect,
    limits: &Limits,
    out: &'a mut Buffers,
) -> Result<Unpacked<'a>, Refusal> {
    if body.len() > limits.body_bytes_max {
        return Err(room::too_large(limits.body_bytes_max));
    }
    let Buffers {
        engines,
        outer,
        inner,
    } = out;
    match *encodings {
        [] if body.starts_with(&gzip::MAGIC) => {
            engines.decode(Encoding::Gzip, body, limits, outer)?;
            Ok(Unpacked {
                body: outer.filled(),
                warning: Some(Warning::GzipUndeclared),
            })
        }
        [] => Ok(Unpacked {
            body,
            warning: None,
        }),
        [only] => engines.undo(only, body, expect, limits, outer),
        [first, second] => {
            let once = engines.undo(second, body, expect, limits, outer)?;
            let twice = engines.undo(first, once.body, expect, limits, inner)?;
            Ok(Unpacked {
                body: twice.body,
                warning: once.warning.or(twice.warning),
            })
        }
        _ => Err(Refusal::malformed(
            "body",
            format!(
                "{} stacked codings; at most {STACKED_MAX} are undone",
                encodings.len()
            ),
        )),
    }
}

/// The sentence for a stream that ends before its end.
fn cut(stream: &str) -> Refusal {
    Refusal::malformed("body", format!("{stream} ends early; expected it whole"))
}

/// The sentence for a stream that cannot be what it says.
fn corrupt(stream: &str) -> Refusal {
    Refusal::malformed(
        "body",
        format!("{stream} is corrupt; expected it as it was compressed"),
    )
}

/// Counts one more member or frame.
fn count_member(members: &mut usize, members_max: usize, stream: &str) -> Result<(), Refusal> {
    *members += 1;
    if *members > members_max {
        return Err(Refusal::malformed(
            "body",
            format!("{stream}s in one body exceed the limit; at most {members_max} are read"),
        ));
    }
    Ok(())
}
