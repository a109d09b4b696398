//! Decoder of gzip members, one after another, and bare deflate.
//!
//! Nearly every body is one member, which a whole-buffer decoder inflates in two thirds of the time that a
//! streaming decoder needs. It does not report where the member ends, so this fast path is taken only if the
//! member's checksum and length occur only at the end of the body; all other bodies take the streaming path.

use flate2::Decompress;
use libdeflater::{Decompressor, crc32};
use memchr::memmem;

use super::output::OutputBuffer;
use super::{corrupt, count_member, inflate, truncated};
use crate::refusal::Refusal;

pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];
const METHOD_DEFLATE: u8 = 8;
const HAS_HEADER_CRC: u8 = 0x02;
const HAS_EXTRA: u8 = 0x04;
const HAS_NAME: u8 = 0x08;
const HAS_COMMENT: u8 = 0x10;
const RESERVED: u8 = 0xe0;
const TRAILER_BYTES: usize = 8;
const MEMBER: &str = "gzip member";

pub(super) struct Decoder {
    whole: Decompressor,
    stream: Decompress,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            whole: Decompressor::new(),
            stream: Decompress::new(false),
        }
    }
}

impl Decoder {
    pub(super) fn decode(
        &mut self,
        body: &[u8],
        members_max: usize,
        output: &mut OutputBuffer,
    ) -> Result<(), Refusal> {
        // A failed attempt only writes to the free part of the output, so the streaming path starts clean.
        if self.whole_member(body, output).is_some() {
            return Ok(());
        }
        let mut rest = body;
        let mut members = 0;
        loop {
            count_member(&mut members, members_max, MEMBER)?;
            rest = self.member(rest, output)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    pub(super) fn decode_deflate(
        &mut self,
        body: &[u8],
        output: &mut OutputBuffer,
    ) -> Result<(), Refusal> {
        let name = "deflate stream";
        let wrapped = inflate::has_zlib_header(body);
        let used = inflate::stream(&mut self.stream, wrapped, body, output, name)?;
        end_of(body, used, name)
    }

    /// Inflates a body that is exactly one member; `None` if that is not certain.
    fn whole_member(&mut self, body: &[u8], output: &mut OutputBuffer) -> Option<()> {
        let deflated = header(body).ok()?;
        let trailer = deflated.last_chunk::<TRAILER_BYTES>()?;
        let (checksum, length) = split_trailer(*trailer);
        output.expect(u64::from(length), body.len());
        // `None` if the declared length is implausible and was not reserved: the streaming path decides.
        let out = output.split().1.get_mut(..usize::try_from(length).ok()?)?;
        let written = self.whole.gzip_decompress(body, out).ok()?;
        // If the trailer bytes also occur earlier, a member may end there, so the streaming path must decide.
        let whole = written == out.len()
            && crc32(out) == checksum
            && memmem::find(deflated, trailer)? == deflated.len() - TRAILER_BYTES;
        whole.then(|| output.advance(written))
    }

    /// Inflates the member at the start of `input`. Returns the input after it.
    fn member<'a>(
        &mut self,
        input: &'a [u8],
        output: &mut OutputBuffer,
    ) -> Result<&'a [u8], Refusal> {
        let deflated = header(input)?;
        let start = output.filled().len();
        let used = inflate::stream(&mut self.stream, false, deflated, output, MEMBER)?;
        let (trailer, rest) = deflated
            .get(used..)
            .and_then(<[u8]>::split_first_chunk::<TRAILER_BYTES>)
            .ok_or_else(|| truncated(MEMBER))?;
        let (checksum, length) = split_trailer(*trailer);
        let written = output.filled().get(start..).unwrap_or_default();
        // The format stores the length modulo 2^32.
        if crc32(written) != checksum || written.len() as u64 & 0xffff_ffff != u64::from(length) {
            return Err(Refusal::malformed(
                "body",
                "gzip checksum or length does not match the data",
            ));
        }
        Ok(rest)
    }
}

fn split_trailer(trailer: [u8; TRAILER_BYTES]) -> (u32, u32) {
    // Two little-endian words: the checksum, then the length.
    let both = u64::from_le_bytes(trailer);
    ((both & 0xffff_ffff) as u32, (both >> 32) as u32)
}

fn end_of(body: &[u8], used: usize, name: &str) -> Result<(), Refusal> {
    match body.len().saturating_sub(used) {
        0 => Ok(()),
        excess => Err(Refusal::malformed(
            "body",
            format!("{excess} bytes follow the {name}; expected the body to end there"),
        )),
    }
}

/// Reads a member's header. Returns the input after it.
fn header(member: &[u8]) -> Result<&[u8], Refusal> {
    // A part of the magic is a truncated member, not another format.
    if !member.starts_with(&MAGIC) && !MAGIC.starts_with(member) {
        return Err(Refusal::malformed(
            "body",
            "no gzip member at this position; expected a gzip header",
        ));
    }
    let ([_, _, method, flags, ..], rest) = member
        .split_first_chunk::<10>()
        .ok_or_else(|| truncated(MEMBER))?;
    if *method != METHOD_DEFLATE || flags & RESERVED != 0 {
        return Err(corrupt("gzip header"));
    }
    let rest = optional_fields(*flags, rest).ok_or_else(|| truncated("gzip header"))?;
    if flags & HAS_HEADER_CRC == 0 {
        return Ok(rest);
    }
    let (declared, deflated) = rest
        .split_first_chunk::<2>()
        .ok_or_else(|| truncated("gzip header"))?;
    let fields = member.get(..member.len() - rest.len()).unwrap_or_default();
    let [low, high, ..] = crc32(fields).to_le_bytes();
    if *declared == [low, high] {
        Ok(deflated)
    } else {
        Err(corrupt("gzip header"))
    }
}

/// Skips the extra field, the file name and the comment.
fn optional_fields(flags: u8, mut rest: &[u8]) -> Option<&[u8]> {
    if flags & HAS_EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        if flags & text != 0 {
            rest = rest.get(memchr::memchr(0, rest)? + 1..)?;
        }
    }
    Some(rest)
}
