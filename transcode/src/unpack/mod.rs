//! Decompression of a request body: decodes all of its content codings, or refuses the body.
//!
//! End of stream, checksum and length are required if the format has them; bytes after the end are
//! malformed. The output limit is enforced while output is produced. Framed snappy has no end mark, so a body truncated
//! between two chunks is detected by the protobuf or JSON decoder, not here.

mod gzip;
mod inflate;
mod lz4;
mod output;
mod snappy;
mod zstd;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::visit::Warning;
use output::OutputBuffer;

/// Maximum number of codings on one body.
const STACKED_MAX: usize = 2;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One or several gzip members.
    Gzip,
    /// One zlib or raw deflate stream, distinguished by the zlib header.
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
    /// Returns the coding with this lower-case name; `None` if it is not supported.
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

    /// Returns whether the body has the magic of this coding; `None` if the coding has no distinctive magic.
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

/// Declared type of the decompressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json` or `application/x-ndjson`.
    Json,
}

impl Expect {
    /// Returns whether the body clearly has this type already, so that there is no coding to decode.
    fn is_met_by(self, body: &[u8]) -> bool {
        match self {
            Self::Protobuf => !body.is_empty() && is_resource_spans_to_the_end(body),
            Self::Json => body.trim_ascii_start().starts_with(b"{"),
        }
    }
}

/// Only `resource_spans` (field 1, length-delimited) may occur at the top level of a request.
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
    // A length has at most 32 bits, so its varint has at most five bytes.
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

/// A decompressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpacked<'a> {
    /// The decompressed bytes.
    pub body: &'a [u8],
    /// Warning about a wrong `Content-Encoding` that the receiver corrected.
    pub warning: Option<Warning>,
}

/// Decoders and their output, reused for every body. One per thread.
#[derive(Default)]
pub struct Buffers {
    decoders: Decoders,
    // Two buffers, because the output of one decoder is the input of the other.
    outer: OutputBuffer,
    inner: OutputBuffer,
}

impl Buffers {
    /// Returns the memory held between bodies, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.outer.held_bytes() + self.inner.held_bytes() + self.decoders.zstd.held_bytes()
    }
}

#[derive(Default)]
struct Decoders {
    gzip: gzip::Decoder,
    zstd: zstd::Decoder,
}

impl Decoders {
    fn decode(
        &mut self,
        encoding: Encoding,
        body: &[u8],
        limits: &Limits,
        output: &mut OutputBuffer,
    ) -> Result<(), Refusal> {
        output.open(limits.body_bytes_max);
        match encoding {
            Encoding::Gzip => self.gzip.decode(body, limits.members_max, output),
            Encoding::Deflate => self.gzip.decode_deflate(body, output),
            Encoding::Zstd => self.zstd.decode(body, limits.members_max, output),
            Encoding::Snappy => snappy::decode(body, output),
            Encoding::SnappyFramed => snappy::decode_framed(body, output),
            Encoding::Lz4 => lz4::decode(body, limits.members_max, output),
        }?;
        output.close()
    }

    /// Decodes one coding, unless the body is clearly decoded already.
    fn decode_if_encoded<'a>(
        &mut self,
        encoding: Encoding,
        body: &'a [u8],
        expect: Expect,
        limits: &Limits,
        output: &'a mut OutputBuffer,
    ) -> Result<Unpacked<'a>, Refusal> {
        // A proxy may have decompressed the body and kept the header.
        if encoding.starts(body) == Some(false) && expect.is_met_by(body) {
            return Ok(Unpacked {
                body,
                warning: Some(Warning::EncodingUnneeded),
            });
        }
        self.decode(encoding, body, limits, output)?;
        Ok(Unpacked {
            body: output.filled(),
            warning: None,
        })
    }
}

/// Decodes `encodings` (in the order they were applied, without identity). An undeclared gzip body is
/// recognised by its magic, which is neither protobuf nor JSON.
///
/// # Errors
/// Malformed if a stream is truncated, corrupt, followed by more bytes, or has too many members; too large if the body exceeds
/// the limit before or after decompression.
pub fn unpack<'a>(
    body: &'a [u8],
    encodings: &[Encoding],
    expect: Expect,
    limits: &Limits,
    out: &'a mut Buffers,
) -> Result<Unpacked<'a>, Refusal> {
    if body.len() > limits.body_bytes_max {
        return Err(output::too_large(limits.body_bytes_max));
    }
    let Buffers {
        decoders,
        outer,
        inner,
    } = out;
    match *encodings {
        [] if body.starts_with(&gzip::MAGIC) => {
            decoders.decode(Encoding::Gzip, body, limits, outer)?;
            Ok(Unpacked {
                body: outer.filled(),
                warning: Some(Warning::GzipUndeclared),
            })
        }
        [] => Ok(Unpacked {
            body,
            warning: None,
        }),
        [only] => decoders.decode_if_encoded(only, body, expect, limits, outer),
        // The coding that was applied last is decoded first.
        [first, second] => {
            let once = decoders.decode_if_encoded(second, body, expect, limits, outer)?;
            let twice = decoders.decode_if_encoded(first, once.body, expect, limits, inner)?;
            Ok(Unpacked {
                body: twice.body,
                warning: once.warning.or(twice.warning),
            })
        }
        _ => Err(Refusal::malformed(
            "body",
            format!(
                "body has {} content codings; at most {STACKED_MAX} are supported",
                encodings.len()
            ),
        )),
    }
}

/// Refusal of a stream that ends too early.
fn truncated(stream: &str) -> Refusal {
    Refusal::malformed("body", format!("{stream} is truncated"))
}

/// Refusal of a stream with invalid content.
fn corrupt(stream: &str) -> Refusal {
    Refusal::malformed("body", format!("{stream} is corrupt"))
}

/// Counts one more member or frame.
fn count_member(members: &mut usize, members_max: usize, stream: &str) -> Result<(), Refusal> {
    *members += 1;
    if *members > members_max {
        return Err(Refusal::malformed(
            "body",
            format!("body has too many {stream}s; at most {members_max} are accepted"),
        ));
    }
    Ok(())
}
