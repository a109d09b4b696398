//! Decompression bombs are refused at the limit, using only the memory that the limit allows.

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};

use crate::streams::{CODINGS, Coding, gzip, lz4, skippable, snappy_framed, telemetry, zstd};
use crate::{plain, up_to, verdict, verdict_within};

const MIB: usize = 1 << 20;

#[test]
fn bomb_of_200_mb_is_too_large_and_allocates_no_more_than_the_limit() {
    let zeros = vec![0; 200_000_000];
    for (name, encoding, encode) in CODINGS {
        let mut buffers = Buffers::default();
        let stream = encode(&zeros);

        let refusal = unpack(
            &stream,
            &[encoding],
            Expect::Protobuf,
            &Limits::default(),
            &mut buffers,
        )
        .unwrap_err();

        assert_eq!(refusal.verdict, Verdict::TooLarge, "{name}");
        // The limit, one byte, and a zstd context.
        assert!(
            buffers.held_bytes() <= 65 * MIB + 10 * MIB,
            "{name}: {}",
            buffers.held_bytes()
        );
    }
}

#[test]
fn framed_snappy_bomb_is_too_large() {
    let stream = snappy_framed(&vec![0; 10 * MIB]);

    let verdict = verdict_within(&stream, &[Encoding::SnappyFramed], &up_to(MIB));

    assert_eq!(verdict, Some(Verdict::TooLarge));
}

#[test]
fn body_at_the_limit_is_accepted_and_one_byte_more_is_refused() {
    let data = telemetry(100_000);
    let framed: Coding = ("framed", Encoding::SnappyFramed, snappy_framed);
    for (name, encoding, encode) in CODINGS.into_iter().chain([framed]) {
        let stream = encode(&data);

        assert_eq!(
            verdict_within(&stream, &[encoding], &up_to(100_000)),
            None,
            "{name}"
        );
        let over = verdict_within(&stream, &[encoding], &up_to(99_999));
        assert_eq!(over, Some(Verdict::TooLarge), "{name}");
    }
}

#[test]
fn uncompressed_body_has_the_same_limit() {
    assert_eq!(verdict_within(&[b'x'; 100], &[], &up_to(100)), None);
    assert_eq!(
        verdict_within(&[b'x'; 101], &[], &up_to(100)),
        Some(Verdict::TooLarge)
    );
}

#[test]
fn intermediate_result_of_two_codings_has_the_same_limit() {
    let body = gzip(&gzip(&telemetry(MIB)));

    let verdict = verdict_within(&body, &[Encoding::Gzip, Encoding::Gzip], &up_to(body.len()));

    assert_eq!(verdict, Some(Verdict::TooLarge));
}

#[test]
fn sixteen_members_are_read_and_seventeen_are_malformed() {
    let frames = [
        (Encoding::Gzip, gzip(b"s")),
        (Encoding::Zstd, zstd(b"s")),
        (Encoding::Lz4, lz4(b"s")),
    ];
    for (encoding, frame) in frames {
        assert_eq!(plain(&frame.repeat(16), encoding), b"s".repeat(16));
        assert_eq!(
            verdict(&frame.repeat(17), encoding),
            Some(Verdict::Malformed)
        );
    }
}

#[test]
fn thousands_of_empty_members_are_malformed() {
    assert_eq!(
        verdict(&gzip(b"").repeat(5_000), Encoding::Gzip),
        Some(Verdict::Malformed)
    );
    assert_eq!(
        verdict(&zstd(b"").repeat(5_000), Encoding::Zstd),
        Some(Verdict::Malformed)
    );
    assert_eq!(
        verdict(&skippable(b"").repeat(5_000), Encoding::Lz4),
        Some(Verdict::Malformed)
    );
}

#[test]
fn small_body_gets_a_small_buffer_whatever_length_it_announces() {
    let mut stream = gzip(&telemetry(1_000));
    let at = stream.len() - 4;
    stream[at..].copy_from_slice(&(60_u32 << 20).to_le_bytes());
    let mut buffers = Buffers::default();

    unpack(
        &stream,
        &[Encoding::Gzip],
        Expect::Json,
        &Limits::default(),
        &mut buffers,
    )
    .unwrap_err();

    assert!(buffers.held_bytes() < MIB, "{} bytes", buffers.held_bytes());
}

#[test]
fn buffer_of_a_large_body_is_freed() {
    let mut buffers = Buffers::default();
    let limits = Limits::default();
    let large = gzip(&telemetry(40 * MIB));
    unpack(
        &large,
        &[Encoding::Gzip],
        Expect::Json,
        &limits,
        &mut buffers,
    )
    .unwrap();

    unpack(
        &gzip(b"s"),
        &[Encoding::Gzip],
        Expect::Json,
        &limits,
        &mut buffers,
    )
    .unwrap();

    assert!(buffers.held_bytes() < MIB, "{} bytes", buffers.held_bytes());
}
