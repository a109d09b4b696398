"""Claims about records as bytes: what they answer for, what a torn tail is, what damage is."""

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
    sealed_kind,
)
from receiver.journal.names import Kind
from receiver.model import SegmentId
from tests.support.record_layout import HEADER_BYTES, ZSTD_MAGIC, footer, record

SEGMENT = SegmentId(7, 3)


def of(*names: str) -> bytes:
    return b"".join(record(name, epoch=SEGMENT.epoch, seq=SEGMENT.seq, rows=2) for name in names)


def test_a_record_says_what_it_answers_for() -> None:
    [found] = transcode.scan(of("acme")).records

    assert answers_of(found) == (Answered("acme", b"d" * 16, 1, 2, (Tally("prj", 2, 2, 0, 0),)),)
    assert (found.offset, found.length, found.rows) == (0, len(of("acme")), 2)
    assert found.received_ms == (5, 7)


@pytest.mark.parametrize("digest_bytes", [0, 15, 17, 32])
def test_a_digest_of_another_length_is_no_answer(digest_bytes: int) -> None:
    """The redelivery window is asked for many at a time: one would shift those behind it."""
    answers = msgspec.msgpack.encode([["acme", bytes(digest_bytes), 1, 2, []]])

    with pytest.raises(msgspec.ValidationError):
        decoded(answers)


def test_records_read_back_in_order_and_know_their_segment() -> None:
    found = transcode.scan(of("a", "b", "c"))

    assert [answers_of(one)[0].drain for one in found.records] == ["a", "b", "c"]
    assert (found.epoch, found.seq, found.good_bytes) == (7, 3, len(of("a", "b", "c")))
    assert (found.sealed, found.damage) == (False, [])


def test_a_segment_cut_at_any_byte_of_its_last_two_records_keeps_the_whole_ones() -> None:
    content = of("a", "b", "c")
    ends = [len(of("a")), len(of("a", "b")), len(content)]

    for size_bytes in range(ends[0], ends[2]):
        found = transcode.scan(content[:size_bytes])

        assert found.good_bytes == max(end for end in ends if end <= size_bytes)
        assert (found.sealed, found.damage) == (False, [])


def test_a_flipped_bit_in_the_last_header_is_a_torn_tail() -> None:
    content = of("a", "b")
    start = len(of("a"))

    for bit in range(start * 8, (start + HEADER_BYTES) * 8):
        found = transcode.scan(flipped(content, bit))

        assert (found.good_bytes, found.damage) == (start, [])


def test_a_flipped_bit_in_a_header_that_a_record_follows_is_damage_with_its_place() -> None:
    content = of("a", "b", "c")
    start, end = len(of("a")), len(of("a", "b"))

    for bit in range(start * 8, (start + HEADER_BYTES) * 8):
        found = transcode.scan(flipped(content, bit))

        assert [answers_of(one)[0].drain for one in found.records] == ["a", "c"]
        assert [(offset, length) for offset, length, _ in found.damage] == [(start, end - start)]


def test_a_flipped_bit_anywhere_in_a_sealed_segment_is_seen() -> None:
    sealed = of("a") + transcode.footer(of("a"))

    for bit in range(len(sealed) * 8):
        found = transcode.scan(flipped(sealed, bit))

        assert damage_in(found, SEGMENT, len(sealed))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_whole_sealed_segment_has_no_damage() -> None:
    sealed = of("a", "b") + transcode.footer(of("a", "b"))

    found = transcode.scan(sealed)

    assert (found.sealed, damage_in(found, SEGMENT, len(sealed))) == (True, [])
    assert sealed == of("a", "b") + footer(of("a"), of("b"), rows=4)


def test_a_sealed_name_without_a_footer_is_damage() -> None:
    found = transcode.scan(of("a") + b"?")

    [damage] = damage_in(found, SEGMENT, len(of("a") + b"?"))

    assert str(damage) == (
        "segment 0000000000000007-0000000003 at byte 120, 1 bytes: "
        "footer is missing or damaged in a sealed file"
    )
    assert damage_in(found, SEGMENT) == []


def test_records_under_another_segment_s_name_are_damage() -> None:
    [damage] = damage_in(transcode.scan(of("a")), SegmentId(7, 4))

    assert damage.reason == "contains records of segment 0000000000000007-0000000003"


def test_a_record_of_another_segment_among_ours_is_damage() -> None:
    found = transcode.scan(of("a") + record("stray", epoch=9, seq=9) + of("b"))

    [damage] = damage_in(found, SEGMENT)

    assert damage.offset == len(of("a"))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param(of("a"), Kind.LZ4, id="lz4"),
        pytest.param(
            record("a", rows=0) + record("b", magic=ZSTD_MAGIC),
            Kind.ZSTD,
            id="zstd after a record without rows",
        ),
        pytest.param(record("a", rows=0), Kind.LZ4, id="nothing to tell by"),
    ],
)
def test_the_first_payload_tells_the_codec(content: bytes, kind: Kind) -> None:
    assert sealed_kind(content, transcode.scan(content)) is kind


def test_a_footer_can_be_listed_without_reading_the_segment() -> None:
    sealed = of("a", "b") + transcode.footer(of("a", "b"))

    assert footer_counts_of(sealed[-100:]) == FooterCounts(records=2, rows=4, bytes_before=len(of("a", "b")))
    assert footer_counts_of(of("a")) is None
    assert footer_counts_of(b"") is None
