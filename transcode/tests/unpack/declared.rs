//! Declared content codings compared with the body.

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};
use _transcode::visit::Warning;

use crate::streams::{gzip, zstd};
use crate::{unpacked, verdict};

/// Two `resource_spans`, the second empty.
const REQUEST: &[u8] = b"\x0a\x03\x0a\x01\x2a\x0a\x00";

const WITH_MAGIC: [Encoding; 4] = [
    Encoding::Gzip,
    Encoding::Zstd,
    Encoding::SnappyFramed,
    Encoding::Lz4,
];

#[test]
fn coding_names_are_those_of_the_registry_and_the_collector() {
    let names = [
        "gzip",
        "x-gzip",
        "deflate",
        "zlib",
        "zstd",
        "snappy",
        "x-snappy-framed",
        "lz4",
    ];

    assert!(names.iter().all(|name| Encoding::from_name(name).is_some()));
    assert_eq!(Encoding::from_name("br"), None);
    assert_eq!(Encoding::from_name("identity"), None);
}

#[test]
fn undeclared_gzip_is_decompressed_with_a_warning() {
    let result = unpacked(&gzip(REQUEST), &[], &Limits::default()).unwrap();

    assert_eq!(result, (REQUEST.to_vec(), Some(Warning::GzipUndeclared)));
}

#[test]
fn undeclared_zstd_is_not_decompressed() {
    let body = zstd(REQUEST);

    assert_eq!(
        unpacked(&body, &[], &Limits::default()).unwrap(),
        (body.clone(), None)
    );
}

#[test]
fn plain_protobuf_body_with_a_declared_coding_is_accepted_with_a_warning() {
    for encoding in WITH_MAGIC {
        let result = unpacked(REQUEST, &[encoding], &Limits::default()).unwrap();

        assert_eq!(
            result,
            (REQUEST.to_vec(), Some(Warning::EncodingUnneeded)),
            "{encoding:?}"
        );
    }
}

#[test]
fn coding_declared_twice_and_applied_once_is_decoded_once() {
    let twice = [Encoding::Gzip, Encoding::Gzip];

    let result = unpacked(&gzip(REQUEST), &twice, &Limits::default()).unwrap();

    assert_eq!(result, (REQUEST.to_vec(), Some(Warning::EncodingUnneeded)));
}

#[test]
fn plain_json_body_with_a_declared_coding_is_accepted_with_a_warning() {
    let body = b"\r\n {\"resourceSpans\":[]}";
    let mut buffers = Buffers::default();

    let result = unpack(
        body,
        &[Encoding::Gzip],
        Expect::Json,
        &Limits::default(),
        &mut buffers,
    )
    .unwrap();

    assert_eq!(
        (result.body, result.warning),
        (&body[..], Some(Warning::EncodingUnneeded))
    );
}

#[test]
fn codings_without_a_magic_are_decoded_as_declared() {
    for encoding in [Encoding::Deflate, Encoding::Snappy] {
        assert_eq!(
            verdict(REQUEST, encoding),
            Some(Verdict::Malformed),
            "{encoding:?}"
        );
    }
}

#[test]
fn body_neither_compressed_nor_of_its_type_is_malformed() {
    let bodies: [&[u8]; 8] = [
        b"",
        b"{}",
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a\x01ab",
        b"\x12\x00",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x00\x08\x01",
    ];
    for body in bodies {
        for encoding in WITH_MAGIC {
            assert_eq!(
                verdict(body, encoding),
                Some(Verdict::Malformed),
                "{body:?} {encoding:?}"
            );
        }
    }
}
