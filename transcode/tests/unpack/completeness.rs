//! Every coding round-trips, and only complete streams are accepted.

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};
use proptest::prelude::*;

use crate::streams::{CODINGS, gzip, lz4, skippable, snappy_framed, telemetry, zstd};
use crate::{plain, unpacked, verdict, verdict_within};

#[test]
fn every_coding_round_trips() {
    for (name, encoding, encode) in CODINGS {
        for bytes in [0, 1, 300, 70_000, 1_000_000] {
            let data = telemetry(bytes);

            assert_eq!(
                plain(&encode(&data), encoding),
                data,
                "{name}, {bytes} bytes"
            );
        }
    }
}

#[test]
fn every_strict_prefix_is_malformed() {
    for (name, encoding, encode) in CODINGS {
        let stream = encode(&telemetry(900));
        for length in 0..stream.len() {
            let result = verdict(&stream[..length], encoding);

            assert_eq!(
                result,
                Some(Verdict::Malformed),
                "{name} cut to {length} bytes"
            );
        }
    }
}

#[test]
fn truncated_stream_of_many_blocks_is_malformed() {
    let data = telemetry(400_000);
    for (name, encoding, encode) in CODINGS {
        let stream = encode(&data);
        for length in (0..stream.len()).step_by(stream.len() / 97) {
            let result = verdict(&stream[..length], encoding);

            assert_eq!(
                result,
                Some(Verdict::Malformed),
                "{name} cut to {length} bytes"
            );
        }
    }
}

#[test]
fn trailing_bytes_are_malformed() {
    for (name, encoding, encode) in CODINGS {
        for excess in [&b"\0"[..], b"junkjunk", b"\0\0\0\0\0\0\0\0"] {
            let stream = [&encode(b"spans"), excess].concat();

            assert_eq!(
                verdict(&stream, encoding),
                Some(Verdict::Malformed),
                "{name}"
            );
        }
    }
}

#[test]
fn repeated_trailer_after_a_member_is_malformed() {
    let member = gzip(b"spans");
    let stream = [&member[..], &member[member.len() - 8..]].concat();

    assert_eq!(verdict(&stream, Encoding::Gzip), Some(Verdict::Malformed));
}

#[test]
fn members_and_frames_are_read_in_order() {
    let (first, second) = (telemetry(3_000), telemetry(70_000));
    let both = [&first[..], &second].concat();

    assert_eq!(
        plain(&[gzip(&first), gzip(&second)].concat(), Encoding::Gzip),
        both
    );
    assert_eq!(
        plain(&[zstd(&first), zstd(&second)].concat(), Encoding::Zstd),
        both
    );
    assert_eq!(
        plain(&[lz4(&first), lz4(&second)].concat(), Encoding::Lz4),
        both
    );
}

#[test]
fn equal_members_are_both_read() {
    let member = gzip(b"spans");

    assert_eq!(
        plain(&[&member[..], &member].concat(), Encoding::Gzip),
        b"spansspans"
    );
}

#[test]
fn skippable_frames_are_skipped_at_every_position() {
    for (encoding, frame) in [
        (Encoding::Zstd, zstd(b"spans")),
        (Encoding::Lz4, lz4(b"spans")),
    ] {
        let stream = [skippable(b""), frame, skippable(b"more than nothing")].concat();

        assert_eq!(plain(&stream, encoding), b"spans");
        assert_eq!(
            verdict(&stream[..stream.len() - 1], encoding),
            Some(Verdict::Malformed)
        );
    }
}

#[test]
fn framed_snappy_is_decoded_under_both_names() {
    let data = telemetry(200_000);
    let stream = snappy_framed(&data);

    assert_eq!(plain(&stream, Encoding::SnappyFramed), data);
    assert_eq!(plain(&stream, Encoding::Snappy), data);
}

#[test]
fn framed_snappy_cut_inside_a_chunk_is_malformed() {
    let stream = snappy_framed(&telemetry(900));
    let boundary = 10;
    for length in (0..stream.len()).filter(|&length| length != boundary) {
        let result = verdict(&stream[..length], Encoding::SnappyFramed);

        assert_eq!(result, Some(Verdict::Malformed), "cut to {length} bytes");
    }
}

#[test]
fn stacked_codings_are_decoded_in_reverse_order() {
    let body = zstd(&gzip(b"spans"));
    let limits = Limits::default();

    let (plain, warning) = unpacked(&body, &[Encoding::Gzip, Encoding::Zstd], &limits).unwrap();

    assert_eq!((&plain[..], warning), (&b"spans"[..], None));
    let three = [Encoding::Gzip, Encoding::Zstd, Encoding::Gzip];
    assert_eq!(
        verdict_within(&gzip(&body), &three, &limits),
        Some(Verdict::Malformed)
    );
}

#[test]
fn reused_buffers_do_not_change_the_result() {
    let mut buffers = Buffers::default();
    let limits = Limits::default();
    for (name, encoding, encode) in CODINGS {
        for bytes in [200_000, 10, 3_000] {
            let data = telemetry(bytes);
            let stream = encode(&data);

            let result = unpack(&stream, &[encoding], Expect::Json, &limits, &mut buffers).unwrap();

            assert!(result.body == data, "{name}, {bytes} bytes");
            let cut = &stream[..stream.len() / 2];
            unpack(cut, &[encoding], Expect::Json, &limits, &mut buffers).unwrap_err();
        }
    }
}

#[test]
fn empty_body_as_framed_snappy_is_malformed() {
    // The encoder writes nothing for no data, not even the stream identifier by which a stream is recognised.
    let stream = snappy_framed(b"");

    assert_eq!(stream, b"");
    assert_eq!(
        verdict(&stream, Encoding::SnappyFramed),
        Some(Verdict::Malformed)
    );
}

proptest! {
    #[test]
    fn random_data_round_trips(data in prop::collection::vec(any::<u8>(), 0..5_000)) {
        for (_, encoding, encode) in CODINGS {
            prop_assert_eq!(&plain(&encode(&data), encoding), &data);
        }
    }

    #[test]
    fn random_data_round_trips_as_framed_snappy(data in prop::collection::vec(any::<u8>(), 1..5_000)) {
        prop_assert_eq!(&plain(&snappy_framed(&data), Encoding::SnappyFramed), &data);
    }
}
