//! Streams in the formats that encoders produce.

use std::io::Write;

use _transcode::unpack::Encoding;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use flate2::{Compression, GzBuilder};

pub type Coding = (&'static str, Encoding, fn(&[u8]) -> Vec<u8>);

pub const CODINGS: [Coding; 9] = [
    ("gzip", Encoding::Gzip, gzip),
    (
        "gzip with every header field",
        Encoding::Gzip,
        gzip_with_every_field,
    ),
    ("zlib", Encoding::Deflate, zlib),
    ("raw deflate", Encoding::Deflate, raw_deflate),
    (
        "zstd of unknown length",
        Encoding::Zstd,
        zstd_of_unknown_length,
    ),
    ("zstd", Encoding::Zstd, zstd),
    ("snappy", Encoding::Snappy, snappy),
    ("lz4", Encoding::Lz4, lz4),
    ("lz4 in linked blocks", Encoding::Lz4, lz4_linked),
];

pub fn gzip(data: &[u8]) -> Vec<u8> {
    written(
        GzBuilder::new().write(Vec::new(), Compression::default()),
        data,
        GzEncoder::finish,
    )
}

/// FEXTRA, FNAME, FCOMMENT and, added by hand, FHCRC.
pub fn gzip_with_every_field(data: &[u8]) -> Vec<u8> {
    let builder = GzBuilder::new()
        .extra(&b"ab\x02\x00\x1f\x8b"[..])
        .filename("n")
        .comment("c");
    let stream = written(
        builder.write(Vec::new(), Compression::fast()),
        data,
        GzEncoder::finish,
    );
    with_header_crc(&stream, 10 + 2 + 6 + 2 + 2)
}

/// Sets FHCRC and inserts the checksum after a header of `header_bytes` bytes.
pub fn with_header_crc(stream: &[u8], header_bytes: usize) -> Vec<u8> {
    let mut head = stream[..header_bytes].to_vec();
    head[3] |= 0x02;
    let checksum = libdeflater::crc32(&head);
    head.extend_from_slice(&checksum.to_le_bytes()[..2]);
    head.extend_from_slice(&stream[header_bytes..]);
    head
}

pub fn zlib(data: &[u8]) -> Vec<u8> {
    written(
        ZlibEncoder::new(Vec::new(), Compression::default()),
        data,
        ZlibEncoder::finish,
    )
}

pub fn raw_deflate(data: &[u8]) -> Vec<u8> {
    written(
        DeflateEncoder::new(Vec::new(), Compression::default()),
        data,
        DeflateEncoder::finish,
    )
}

pub fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(data, 3).unwrap()
}

pub fn zstd_of_unknown_length(data: &[u8]) -> Vec<u8> {
    let mut sink = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    sink.include_checksum(true).unwrap();
    written(sink, data, zstd::stream::write::Encoder::finish)
}

pub fn snappy(data: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(data).unwrap()
}

pub fn snappy_framed(data: &[u8]) -> Vec<u8> {
    let mut sink = snap::write::FrameEncoder::new(Vec::new());
    sink.write_all(data).unwrap();
    sink.into_inner().unwrap()
}

pub fn lz4(data: &[u8]) -> Vec<u8> {
    lz4_in(data, lz4_flex::frame::BlockMode::Independent)
}

pub fn lz4_linked(data: &[u8]) -> Vec<u8> {
    lz4_in(data, lz4_flex::frame::BlockMode::Linked)
}

fn lz4_in(data: &[u8], mode: lz4_flex::frame::BlockMode) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(mode)
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(data.len() as u64));
    let sink = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    written(sink, data, |sink| {
        sink.finish().map_err(std::io::Error::other)
    })
}

/// Returns a skippable frame, which zstd and lz4 share.
pub fn skippable(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    [&b"\x54\x2a\x4d\x18"[..], &length, content].concat()
}

fn written<Sink: Write>(
    mut sink: Sink,
    data: &[u8],
    finish: impl FnOnce(Sink) -> std::io::Result<Vec<u8>>,
) -> Vec<u8> {
    sink.write_all(data).unwrap();
    finish(sink).unwrap()
}

/// Returns text that compresses like telemetry and is longer than any window or block.
pub fn telemetry(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 64);
    let mut state = 1_u32;
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        write!(text, "GET /api/users/{:x} 200 iad1;", state >> 12).unwrap();
    }
    text.truncate(bytes);
    text
}
