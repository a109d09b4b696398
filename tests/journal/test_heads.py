"""Tests of pending segments read from record headers: open, sealed, torn, cut and rewritten files."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.journal.appender import Appender
from receiver.journal.heads import ReadPosition, ReadResult, pending_segments
from receiver.journal.segments import Journal
from tests.support.journal import append, appender
from tests.support.record_layout import record


@pytest.fixture
def journal(tmp_path: Path) -> Appender:
    return appender(root=tmp_path)


def names(read: ReadResult | None) -> list[str]:
    assert read is not None
    return [delivery.drain for delivery in read.deliveries]


def read_all(root: Path) -> list[str]:
    return [name for segment in pending_segments(root) for name in names(segment.read(None))]


def open_file(root: Path) -> Path:
    [path] = root.rglob("*.open")
    return path


def test_open_and_sealed_segments_are_read(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a", padding_bytes=100_000)
    append(journal, "b")
    journal.seal()
    append(journal, "c")

    assert read_all(tmp_path) == ["a", "b", "c"]
    assert read_all(tmp_path / "nothing") == []


def test_reading_continues_at_the_last_position_after_growth_and_sealing(
    journal: Appender, tmp_path: Path
) -> None:
    append(journal, "a")
    [segment] = pending_segments(tmp_path)
    first = segment.read(None)
    assert first is not None
    append(journal, "b")
    journal.seal()

    second = segment.read(first.position)

    assert (names(first), names(second)) == (["a"], ["b"])
    assert second is not None
    assert second.continues_previous


def test_rewritten_file_is_read_from_the_start(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    journal.seal()
    [segment] = pending_segments(tmp_path)
    first = segment.read(None)
    assert first is not None
    [sealed] = Journal(tmp_path).sealed()
    sealed.replace(sealed.read())

    second = segment.read(first.position)

    assert names(second) == ["a"]
    assert second is not None
    assert not second.continues_previous


def test_torn_record_is_not_read(journal: Appender, tmp_path: Path) -> None:
    segment = append(journal, "a")
    path = open_file(tmp_path)
    content = path.read_bytes()
    torn = record("torn", epoch=segment.epoch, seq=segment.seq)

    for cut in range(len(torn)):
        path.write_bytes(content + torn[:cut])
        assert read_all(tmp_path) == ["a"], f"cut at {cut}"
    path.write_bytes(content + torn)
    assert read_all(tmp_path) == ["a", "torn"]


def test_record_beyond_the_cut_mark_is_not_read(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    path = open_file(tmp_path)
    acknowledged_bytes = path.stat().st_size
    append(journal, "b")
    [segment] = pending_segments(tmp_path)
    first = segment.read(None)
    assert first is not None
    path.with_suffix(".cut").write_bytes(b"%d\n" % acknowledged_bytes)

    second = segment.read(first.position)

    assert (names(first), names(second)) == (["a", "b"], ["a"])
    assert second is not None
    assert not second.continues_previous


def test_invalid_header_ends_reading(journal: Appender, tmp_path: Path) -> None:
    for name in "abc":
        append(journal, name)
    path = open_file(tmp_path)
    content = path.read_bytes()
    second = len(content) // 3

    for at in (second, second + 8, second + 75):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        assert read_all(tmp_path)[:1] == ["a"]


def test_reading_a_deleted_file_returns_none(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    [segment] = pending_segments(tmp_path)
    open_file(tmp_path).unlink()

    assert segment.read(ReadPosition(1)) is None


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_record_of_another_version_is_not_read(journal: Appender, tmp_path: Path, version: int) -> None:
    append(journal, "a")
    append(journal, "b")
    file = open_file(tmp_path)
    content = bytearray(file.read_bytes())
    second = content.index(b"TDRJ", content.index(b"TDRJ") + 1)
    content[second + 4 : second + 6] = version.to_bytes(2, "little")
    file.write_bytes(content)

    assert read_all(tmp_path) == ["a"]
