//! Hostile streams: wrong checksums and lengths, headers that request too much memory, random bytes.

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};
use proptest::prelude::*;

use crate::streams::{
    CODINGS, gzip, gzip_with_every_field, lz4, snappy_framed, telemetry, with_header_crc, zlib,
    zstd, zstd_of_unknown_length,
};
use crate::{plain, up_to, verdict};

fn flipped(stream: &[u8], from_end: usize) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let at = stream.len() - from_end;
    stream[at] ^= 0x01;
    stream
}

#[test]
fn wrong_checksum_or_length_is_malformed() {
    let data = telemetry(900);
    let cases = [
        ("gzip CRC", Encoding::Gzip, flipped(&gzip(&data), 8)),
        ("gzip length", Encoding::Gzip, flipped(&gzip(&data), 4)),
        (
            "gzip length, high byte",
            Encoding::Gzip,
            flipped(&gzip(&data), 1),
        ),
        (
            "second gzip member's CRC",
            Encoding::Gzip,
            [gzip(&data), flipped(&gzip(&data), 8)].concat(),
        ),
        (
            "first gzip member's CRC",
            Encoding::Gzip,
            [flipped(&gzip(&data), 8), gzip(&data)].concat(),
        ),
        ("zlib Adler", Encoding::Deflate, flipped(&zlib(&data), 1)),
        (
            "zstd checksum",
            Encoding::Zstd,
            flipped(&zstd_of_unknown_length(&data), 1),
        ),
        (
            "lz4 content checksum",
            Encoding::Lz4,
            flipped(&lz4(&data), 1),
        ),
        ("lz4 block checksum", Encoding::Lz4, flipped(&lz4(&data), 9)),
        ("framed snappy checksum", Encoding::SnappyFramed, {
            let mut stream = snappy_framed(&data);
            stream[14] ^= 0x01;
            stream
        }),
    ];
    for (name, encoding, stream) in cases {
        assert_eq!(
            verdict(&stream, encoding),
            Some(Verdict::Malformed),
            "{name}"
        );
    }
}

#[test]
fn gzip_header_checksum_is_verified() {
    let whole = gzip_with_every_field(b"spans");
    let mut wrong = with_header_crc(&gzip(b"spans"), 10);
    wrong[10] ^= 0x01;

    assert_eq!(plain(&whole, Encoding::Gzip), b"spans");
    assert_eq!(
        plain(&[&whole[..], &whole].concat(), Encoding::Gzip),
        b"spansspans"
    );
    assert_eq!(verdict(&wrong, Encoding::Gzip), Some(Verdict::Malformed));
}

#[test]
fn gzip_header_with_reserved_flags_or_another_method_is_malformed() {
    for (at, value) in [(2, 7), (3, 0x20), (3, 0x80)] {
        let mut stream = gzip(b"spans");
        stream[at] = value;

        assert_eq!(verdict(&stream, Encoding::Gzip), Some(Verdict::Malformed));
    }
}

#[test]
fn member_that_contains_its_own_trailer_is_read_completely() {
    let data = b"0123456789";
    let crc = libdeflater::crc32(data).to_le_bytes();
    // A stored block whose data ends with the future trailer is not the end of the member.
    let mut body = b"\x1f\x8b\x08\0\0\0\0\0\0\0\x01\x0a\0\xf5\xff".to_vec();
    body.extend_from_slice(data);
    body.extend_from_slice(&crc);
    body.extend_from_slice(&10_u32.to_le_bytes());
    let twice = [&body[..], &body].concat();

    assert_eq!(plain(&body, Encoding::Gzip), data);
    assert_eq!(plain(&twice, Encoding::Gzip), [&data[..], data].concat());
}

/// Returns a zstd frame: descriptor, then fields, then an empty raw last block.
fn zstd_frame(descriptor: u8, fields: &[u8]) -> Vec<u8> {
    [&b"\x28\xb5\x2f\xfd"[..], &[descriptor], fields, b"\x01\0\0"].concat()
}

fn window_log(log: u8) -> u8 {
    (log - 10) << 3
}

#[test]
fn zstd_window_over_8_mib_is_malformed_without_allocation() {
    for log in [24, 27, 31, 41] {
        let mut buffers = Buffers::default();
        let stream = zstd_frame(0, &[window_log(log)]);

        let refusal = unpack(
            &stream,
            &[Encoding::Zstd],
            Expect::Json,
            &Limits::default(),
            &mut buffers,
        )
        .unwrap_err();

        assert_eq!(refusal.verdict, Verdict::Malformed);
        assert!(
            buffers.held_bytes() < 1 << 20,
            "{} bytes",
            buffers.held_bytes()
        );
    }
    assert_eq!(
        plain(&zstd_frame(0, &[window_log(23)]), Encoding::Zstd),
        b""
    );
}

#[test]
fn zstd_window_over_8_mib_is_malformed_for_small_content_too() {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    let window = zstd::zstd_safe::CParameter::WindowLog(24);
    compressor.set_parameter(window).unwrap();
    let one_segment = compressor.compress(&telemetry(9 << 20)).unwrap();

    assert_eq!(
        verdict(&one_segment, Encoding::Zstd),
        Some(Verdict::Malformed)
    );
}

#[test]
fn declared_zstd_length_of_2_to_the_60_allocates_nothing() {
    let length = (1_u64 << 60).to_le_bytes();
    let with_window = zstd_frame(0xc0, &[&[window_log(20)], &length[..]].concat());
    let single_segment = zstd_frame(0xe0, &length);
    for stream in [with_window, single_segment] {
        let mut buffers = Buffers::default();

        let refusal = unpack(
            &stream,
            &[Encoding::Zstd],
            Expect::Json,
            &Limits::default(),
            &mut buffers,
        )
        .unwrap_err();

        assert_eq!(refusal.verdict, Verdict::Malformed);
        assert!(
            buffers.held_bytes() < 4 << 20,
            "{} bytes",
            buffers.held_bytes()
        );
    }
}

#[test]
fn frames_with_a_dictionary_are_refused() {
    let zstd_with_id = zstd_frame(0x01, &[window_log(20), 7]);
    let mut lz4_with_id = lz4(b"spans");
    lz4_with_id[4] |= 0x01;
    let zlib_with_id = b"\x78\xbb\0\0\0\x01\x03\0".to_vec();

    assert_eq!(
        verdict(&zstd_with_id, Encoding::Zstd),
        Some(Verdict::Malformed)
    );
    assert_eq!(
        verdict(&lz4_with_id, Encoding::Lz4),
        Some(Verdict::Malformed)
    );
    assert_eq!(
        verdict(&zlib_with_id, Encoding::Deflate),
        Some(Verdict::Malformed)
    );
}

#[test]
fn zero_dictionary_id_means_no_dictionary() {
    assert_eq!(
        plain(&zstd_frame(0x01, &[window_log(20), 0]), Encoding::Zstd),
        b""
    );
}

#[test]
fn impossible_snappy_length_is_malformed() {
    let stream = b"\xff\xff\xff\xff\x0f\x00a";

    assert_eq!(verdict(stream, Encoding::Snappy), Some(Verdict::Malformed));
}

fn any_encoding() -> impl Strategy<Value = Encoding> {
    prop::sample::select(
        &[
            Encoding::Gzip,
            Encoding::Deflate,
            Encoding::Zstd,
            Encoding::Snappy,
            Encoding::SnappyFramed,
            Encoding::Lz4,
        ][..],
    )
}

/// Checks that the body stays within the limit and the buffers within their maximum size.
fn check_limits(body: &[u8], encodings: &[Encoding]) -> Result<(), TestCaseError> {
    let mut buffers = Buffers::default();
    let limits = up_to(10_000);
    let result = unpack(body, encodings, Expect::Protobuf, &limits, &mut buffers);
    prop_assert!(result.is_err() || result.is_ok_and(|unpacked| unpacked.body.len() <= 10_000));
    // Two output buffers, and a zstd context for a window of 8 MiB.
    prop_assert!(buffers.held_bytes() <= 2 * 10_001 + (10 << 20));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_never_panic_or_exceed_the_limit(
        body in prop::collection::vec(any::<u8>(), 0..2_000),
        encodings in prop::collection::vec(any_encoding(), 0..3),
    ) {
        check_limits(&body, &encodings)?;
    }

    #[test]
    fn damaged_streams_never_panic_or_exceed_the_limit(
        coding in 0..CODINGS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        bytes in 0_usize..20_000,
    ) {
        let (_, encoding, encode) = CODINGS[coding];
        let mut stream = encode(&telemetry(bytes));
        for (at, value) in damage {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        check_limits(&stream, &[encoding])?;
    }

    #[test]
    fn flipped_bit_in_a_checksummed_stream_never_changes_the_data(
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let data = telemetry(2_000);
        let mut stream = zstd_of_unknown_length(&data);
        let position = at.index(stream.len());
        stream[position] ^= 1 << bit;
        let result = crate::unpacked(&stream, &[Encoding::Zstd], &Limits::default());
        prop_assert!(result.is_err() || result.is_ok_and(|(body, _)| body == data));
        let mut stream = zstd(&data);
        stream.truncate(position.min(stream.len() - 1));
        prop_assert!(verdict(&stream, Encoding::Zstd).is_some());
    }
}
