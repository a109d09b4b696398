"""Beginning of a dead letter: a few rows or characters, for any content."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from backports import zstd

from receiver import transcode
from receiver.dead_letters.directory import DeadLetter, DeadLetters, Reason
from receiver.dead_letters.replay import CHARS_MAX, EXPANDED_BYTES_MAX, ROWS_MAX, beginning_of
from receiver.journal.quarantine import Body, QuarantineFiles, QuarantineNote
from receiver.model import ContentKind, Delivery, SegmentId
from tests.support.fake_clickhouse import NOW_S
from tests.support.redelivery import POLICY, rotted, segment_of
from tests.support.segments import DIGEST_KEY

REASON = Reason(
    segment="0000000000000007-0000000001", cause="poison", text="refused", rows=1, at="2026-11-22"
)


def dead_letter(directory: Path, content: bytes, suffix: str = ".native.lz4") -> DeadLetter:
    letters = DeadLetters(directory / "dead")
    letters.keep(content, suffix, REASON)
    return letters.listed()[0]


def body(directory: Path, content: bytes, *codings: str) -> Body:
    delivery = Delivery("shop", content, ContentKind.JSON, codings, 0, strict=False, body_bytes_max=1 << 20)
    files = QuarantineFiles(directory / "aside")
    files.write(files.path_of("ab" * 16, delivery), content, QuarantineNote("shop"))
    return files.listed()[0]


def segment_with(attributes: dict[str, str]) -> bytes:
    span = {
        "traceId": f"{1:032x}",
        "spanId": f"{1:016x}",
        "startTimeUnixNano": str(NOW_S * 10**9),
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()],
    }
    sent = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    delivery = Delivery(
        "shop", sent, ContentKind.JSON, (), NOW_S * 10**9, strict=False, body_bytes_max=1 << 20
    )
    record = transcode.commit(POLICY, [delivery], SegmentId(7, 1), DIGEST_KEY).record
    return record + transcode.footer(record)


def test_first_rows_of_several_records_are_shown_without_empty_columns(tmp_path: Path) -> None:
    # Delivery 1 has two rows, delivery 3 has four.
    texts = beginning_of(dead_letter(tmp_path, segment_of(1, [1], [3]))).texts

    rows = [json.loads(text) for text in texts]
    assert len(rows) == ROWS_MAX == 3
    assert [row["TraceId"] for row in rows] == [f"{2:032x}"] * 2 + [f"{4:032x}"]
    assert rows[0]["Duration"] == 0
    assert "StatusMessage" not in rows[0]


def test_text_of_a_row_is_cut(tmp_path: Path) -> None:
    (text,) = beginning_of(dead_letter(tmp_path, segment_with({"big": "x" * 2 * CHARS_MAX}))).texts

    assert len(text) == CHARS_MAX + 1
    assert text.endswith("…")


def test_row_with_any_text_is_shown(tmp_path: Path) -> None:
    (text,) = beginning_of(dead_letter(tmp_path, segment_with({"\x00\u2028": "'\"\\\ud83d\ude00\x1b"}))).texts

    assert json.loads(text)["SpanAttributes"] == {"\x00\u2028": "'\"\\\U0001f600\x1b"}


@pytest.mark.parametrize("content", [b"", b"no segment", segment_of(1, [1])[:100]])
def test_dead_letter_without_a_readable_row_says_so(tmp_path: Path, content: bytes) -> None:
    assert beginning_of(dead_letter(tmp_path, content)).problem == "it has no readable row"


def test_readable_rows_of_a_damaged_dead_letter_are_shown(tmp_path: Path) -> None:
    damaged = dead_letter(tmp_path, segment_of(1, [1], [3]))
    rotted(damaged.path, record=1)

    assert len(beginning_of(damaged).texts) == 2


@pytest.mark.parametrize(
    ("codings", "encode"),
    [((), bytes), (("gzip",), gzip.compress), (("deflate",), zlib.compress), (("zstd",), zstd.compress)],
)
def test_beginning_of_a_body_is_expanded_within_limits(
    tmp_path: Path, codings: tuple[str, ...], encode: object
) -> None:
    assert callable(encode)
    quarantined = body(tmp_path, encode(b"x" * 1_000 * EXPANDED_BYTES_MAX), *codings)

    tracemalloc.start()
    (text,) = beginning_of(quarantined).texts
    _, used_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert text == "x" * CHARS_MAX + "…"
    assert used_bytes < 100 * EXPANDED_BYTES_MAX


def test_body_with_two_codings_is_expanded_in_reverse(tmp_path: Path) -> None:
    content = zstd.compress(gzip.compress(b"{}"))

    assert beginning_of(body(tmp_path, content, "gzip", "zstd")).texts == ("{}",)
