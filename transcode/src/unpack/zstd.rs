//! Decoder of zstd frames, one after another, as RFC 9659 allows them in HTTP: windows up to 8 MiB, no
//! dictionaries. Headers are parsed here first, so that no memory is allocated for a refused frame.

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::output::OutputBuffer;
use super::{corrupt, count_member, truncated};
use crate::refusal::Refusal;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const WINDOW_LOG_MAX: u32 = 23;
const WINDOW_BYTES_MAX: u64 = 1 << WINDOW_LOG_MAX;
const FRAME: &str = "zstd frame";

/// First of the sixteen magics of a skippable frame, in zstd as in lz4. A length follows the magic.
const SKIPPABLE_MAGIC_TAIL: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Returns whether a skippable frame starts here.
pub(super) fn is_skippable(input: &[u8]) -> bool {
    matches!(input, [0x50..=0x5f, tail @ ..] if tail.starts_with(&SKIPPABLE_MAGIC_TAIL))
}

/// Returns the input after the skippable frame that starts here.
pub(super) fn skip<'a>(input: &'a [u8], name: &str) -> Result<&'a [u8], Refusal> {
    input
        .split_first_chunk::<8>()
        .and_then(|(&[_, _, _, _, a, b, c, d], rest)| {
            rest.get(usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?..)
        })
        .ok_or_else(|| truncated(name))
}

pub(super) fn starts(body: &[u8]) -> bool {
    body.starts_with(&MAGIC) || is_skippable(body)
}

/// The context is created for the first zstd body: most processes never receive one.
#[derive(Default)]
pub(super) struct Decoder {
    context: Option<DCtx<'static>>,
}

impl Decoder {
    pub(super) fn decode(
        &mut self,
        body: &[u8],
        members_max: usize,
        output: &mut OutputBuffer,
    ) -> Result<(), Refusal> {
        let context = self.context.get_or_insert_with(DCtx::create);
        let mut rest = body;
        let mut frames = 0;
        loop {
            count_member(&mut frames, members_max, FRAME)?;
            rest = if is_skippable(rest) {
                skip(rest, FRAME)?
            } else {
                frame(context, rest, output)?
            };
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, DCtx::sizeof)
    }
}

/// Decompresses the frame at the start of `input`. Returns the input after it.
fn frame<'a>(
    context: &mut DCtx<'_>,
    input: &'a [u8],
    output: &mut OutputBuffer,
) -> Result<&'a [u8], Refusal> {
    let header = Header::read(input)?;
    // Check the header before the context allocates a window of the declared size.
    header.check()?;
    output.expect(header.content_bytes.unwrap_or(0), input.len());
    context
        // A refused body may have left the context in the middle of a frame.
        .reset(ResetDirective::SessionOnly)
        .and_then(|_| context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)))
        .map_err(|_| corrupt(FRAME))?;
    let start = output.filled().len();
    // The input may contain more frames; the decoder stops at the end of the first.
    let mut source = InBuffer::around(input);
    loop {
        let read_before = source.pos();
        let mut sink = OutBuffer::around(output.free_space()?);
        let hint = context
            .decompress_stream(&mut sink, &mut source)
            .map_err(|_| corrupt(FRAME))?;
        let written = sink.pos();
        output.advance(written);
        if hint == 0 {
            header.check_length(output.filled().len() - start)?;
            return Ok(input.get(source.pos()..).unwrap_or_default());
        }
        if written == 0 && source.pos() == read_before {
            return Err(truncated(FRAME));
        }
    }
}

/// Header of a frame (RFC 8878, 3.1.1.1).
struct Header {
    window_bytes: u64,
    content_bytes: Option<u64>,
    dictionary: bool,
}

impl Header {
    fn read(input: &[u8]) -> Result<Self, Refusal> {
        let Some(rest) = input.strip_prefix(&MAGIC) else {
            return Err(if MAGIC.starts_with(input) {
                truncated(FRAME)
            } else {
                Refusal::malformed(
                    "body",
                    "no zstd frame at this position; expected a frame header",
                )
            });
        };
        Self::fields(rest).ok_or_else(|| truncated(FRAME))
    }

    fn fields(rest: &[u8]) -> Option<Self> {
        let (&descriptor, rest) = rest.split_first()?;
        let single_segment = descriptor & 0x20 != 0;
        let (window, rest) = rest.split_at_checked(usize::from(!single_segment))?;
        let (dictionary, rest) = rest.split_at_checked(match descriptor & 3 {
            0 => 0,
            1 => 1,
            2 => 2,
            _ => 4,
        })?;
        let (content, _) = rest.split_at_checked(match descriptor >> 6 {
            0 => usize::from(single_segment),
            1 => 2,
            2 => 4,
            _ => 8,
        })?;
        let content_bytes = match content.len() {
            0 => None,
            // The format stores two-byte lengths minus 256.
            2 => Some(little_endian(content) + 256),
            _ => Some(little_endian(content)),
        };
        let window_bytes = match *window {
            [descriptor] => window_bytes(descriptor),
            // a single-segment frame has no window field: its content is its window
            _ => content_bytes?,
        };
        let dictionary = dictionary.iter().any(|&byte| byte != 0);
        Some(Self {
            window_bytes,
            content_bytes,
            dictionary,
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.window_bytes > WINDOW_BYTES_MAX {
            return Err(Refusal::malformed(
                "body",
                format!(
                    "zstd frame needs a window of {} bytes; at most {WINDOW_BYTES_MAX} are allowed",
                    self.window_bytes
                ),
            ));
        }
        if self.dictionary {
            return Err(Refusal::malformed(
                "body",
                "zstd frame needs a dictionary; expected a frame without",
            ));
        }
        Ok(())
    }

    /// Checks the declared length. The library accepts a shorter frame if its last block is empty.
    fn check_length(&self, written_bytes: usize) -> Result<(), Refusal> {
        if self
            .content_bytes
            .is_some_and(|declared| declared != written_bytes as u64)
        {
            return Err(corrupt(FRAME));
        }
        Ok(())
    }
}

fn window_bytes(descriptor: u8) -> u64 {
    let base = 1_u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}
