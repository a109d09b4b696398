"""Tests of records as bytes: deliveries of a record, torn tails, and damage."""

import msgspec
import pytest

from receiver import transcode
from receiver.journal.frame import (
    Answered,
    FooterCounts,
    Tally,
    answers_of,
    damage_in,
    decoded,
    footer_counts_of,
)
from receiver.model import SegmentId
from tests.support.record_layout import HEADER_BYTES, ZSTD_MAGIC, footer, record

SEGMENT = SegmentId(7, 3)


def records_of(*names: str) -> bytes:
    return b"".join(record(name, epoch=SEGMENT.epoch, seq=SEGMENT.seq, rows=2) for name in names)


def test_scan_returns_records_in_order_with_their_segment_and_deliveries() -> None:
    scan = transcode.scan(records_of("acme", "b", "c"))
    record_scan, *others = scan.records

    assert answers_of(record_scan) == (Answered("acme", b"d" * 16, 1, 2, (Tally("prj", 2, 2, 0, 0),)),)
    assert (record_scan.offset, record_scan.length, record_scan.rows) == (0, len(records_of("acme")), 2)
    assert record_scan.received_ms == (5, 7)
    assert [answers_of(record)[0].drain for record in others] == ["b", "c"]
    assert (scan.epoch, scan.seq, scan.good_bytes) == (7, 3, len(records_of("acme", "b", "c")))
    assert (scan.sealed, scan.damage) == (False, [])


@pytest.mark.parametrize("digest_bytes", [0, 15, 17, 32])
def test_digest_of_wrong_length_is_refused(digest_bytes: int) -> None:
    """The redelivery window concatenates digests, so a wrong length would shift all later digests."""
    answers = msgspec.msgpack.encode([["acme", bytes(digest_bytes), 1, 2, []]])

    with pytest.raises(msgspec.ValidationError):
        decoded(answers)


def test_flipped_bit_in_an_earlier_header_is_damage_with_its_offset() -> None:
    content = records_of("a", "b", "c")
    start, end = len(records_of("a")), len(records_of("a", "b"))

    for bit in range(start * 8, (start + HEADER_BYTES) * 8):
        scan = transcode.scan(flipped(content, bit))

        assert [answers_of(record)[0].drain for record in scan.records] == ["a", "c"]
        assert [(offset, length) for offset, length, _ in scan.damage] == [(start, end - start)]


def test_flipped_bit_anywhere_in_a_sealed_segment_is_detected() -> None:
    sealed = records_of("a") + transcode.footer(records_of("a"))

    for bit in range(len(sealed) * 8):
        scan = transcode.scan(flipped(sealed, bit))

        assert damage_in(scan, SEGMENT, len(sealed))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_intact_sealed_segment_has_no_damage() -> None:
    sealed = records_of("a", "b") + transcode.footer(records_of("a", "b"))

    scan = transcode.scan(sealed)

    assert (scan.sealed, damage_in(scan, SEGMENT, len(sealed))) == (True, [])
    assert sealed == records_of("a", "b") + footer(records_of("a"), records_of("b"), rows=4)


def test_sealed_segment_without_a_footer_is_damaged() -> None:
    scan = transcode.scan(records_of("a") + b"?")

    [damage] = damage_in(scan, SEGMENT, len(records_of("a") + b"?"))

    assert str(damage) == (
        "segment 0000000000000007-0000000003 at byte 120, 1 bytes: "
        "footer is missing or damaged in a sealed file"
    )
    assert damage_in(scan, SEGMENT) == []


def test_records_of_another_segment_are_damage() -> None:
    [damage] = damage_in(transcode.scan(records_of("a")), SegmentId(7, 4))

    assert damage.reason == "contains records of segment 0000000000000007-0000000003"


def test_single_record_of_another_segment_is_damage() -> None:
    scan = transcode.scan(records_of("a") + record("stray", epoch=9, seq=9) + records_of("b"))

    [damage] = damage_in(scan, SEGMENT)

    assert damage.offset == len(records_of("a"))


@pytest.mark.parametrize(
    ("content", "codec"),
    [
        pytest.param(records_of("a"), "lz4", id="lz4"),
        pytest.param(
            record("a", rows=0) + record("b", magic=ZSTD_MAGIC), "zstd", id="zstd after a record without rows"
        ),
        pytest.param(record("a", rows=0), "lz4", id="no payload"),
    ],
)
def test_codec_is_that_of_the_first_payload(content: bytes, codec: str) -> None:
    assert transcode.scan(content).codec == codec


def test_footer_is_read_without_the_segment() -> None:
    sealed = records_of("a", "b") + transcode.footer(records_of("a", "b"))

    assert footer_counts_of(sealed[-100:]) == FooterCounts(
        records=2, rows=4, bytes_before=len(records_of("a", "b"))
    )
    assert footer_counts_of(records_of("a")) is None
    assert footer_counts_of(b"") is None


def test_damaged_footer_is_not_listed() -> None:
    sealed = records_of("a") + transcode.footer(records_of("a"))

    for bit in range(len(records_of("a")) * 8, len(sealed) * 8):
        assert footer_counts_of(flipped(sealed, bit)) is None


def test_head_gives_the_length_of_its_record() -> None:
    content = records_of("acme")

    assert transcode.record_head(content[:HEADER_BYTES]) == (content.index(b"\x04\x22\x4d\x18"), len(content))
    assert transcode.record_head(content[: HEADER_BYTES - 1]) is None
    assert transcode.record_head(content[1:]) is None
