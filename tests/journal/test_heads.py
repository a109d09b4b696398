"""What waits is read from heads alone: open, sealed, torn, cut and rewritten, each span once."""

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
    return [one.drain for one in read.deliveries]


def read_all(root: Path) -> list[str]:
    return [name for waiting in pending_segments(root) for name in names(waiting.read(None))]


def the_open_file(root: Path) -> Path:
    [found] = root.rglob("*.open")
    return found


def test_open_and_sealed_segments_are_read_record_by_record(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a", padding_bytes=100_000)
    append(journal, "b")
    journal.seal()
    append(journal, "c")

    assert read_all(tmp_path) == ["a", "b", "c"]
    assert read_all(tmp_path / "nothing") == []


def test_a_file_that_grew_and_was_sealed_is_read_on_from_the_mark(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    [waiting] = pending_segments(tmp_path)
    first = waiting.read(None)
    assert first is not None
    append(journal, "b")
    journal.seal()

    second = waiting.read(first.position)

    assert (names(first), names(second)) == (["a"], ["b"])
    assert second is not None
    assert second.continues_previous


def test_a_rewritten_file_is_read_anew(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    journal.seal()
    [waiting] = pending_segments(tmp_path)
    first = waiting.read(None)
    assert first is not None
    [sealed] = Journal(tmp_path).sealed()
    sealed.replace(sealed.read())

    again = waiting.read(first.position)

    assert names(again) == ["a"]
    assert again is not None
    assert not again.continues_previous


def test_a_record_cut_anywhere_counts_nothing(journal: Appender, tmp_path: Path) -> None:
    segment = append(journal, "a")
    path = the_open_file(tmp_path)
    whole = path.read_bytes()
    torn = record("torn", epoch=segment.epoch, seq=segment.seq)

    for cut in range(len(torn)):
        path.write_bytes(whole + torn[:cut])
        assert read_all(tmp_path) == ["a"], f"cut at {cut}"
    path.write_bytes(whole + torn)
    assert read_all(tmp_path) == ["a", "torn"]


def test_what_was_never_promised_is_not_read_though_it_was_seen_before(
    journal: Appender, tmp_path: Path
) -> None:
    append(journal, "a")
    path = the_open_file(tmp_path)
    promised_bytes = path.stat().st_size
    append(journal, "b")
    [waiting] = pending_segments(tmp_path)
    seen = waiting.read(None)
    assert seen is not None
    path.with_suffix(".cut").write_bytes(b"%d\n" % promised_bytes)

    again = waiting.read(seen.position)

    assert (names(seen), names(again)) == (["a", "b"], ["a"])
    assert again is not None
    assert not again.continues_previous


def test_a_head_that_is_none_ends_the_reading(journal: Appender, tmp_path: Path) -> None:
    for name in "abc":
        append(journal, name)
    path = the_open_file(tmp_path)
    content = path.read_bytes()
    second = len(content) // 3

    for at in (second, second + 8, second + 75):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        assert read_all(tmp_path)[:1] == ["a"]


def test_a_file_that_is_gone_is_told(journal: Appender, tmp_path: Path) -> None:
    append(journal, "a")
    [waiting] = pending_segments(tmp_path)
    the_open_file(tmp_path).unlink()

    assert waiting.read(ReadPosition(1)) is None


@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_a_record_of_another_version_is_not_read_as_if_it_were_ours(
    journal: Appender, tmp_path: Path, version: int
) -> None:
    append(journal, "a")
    append(journal, "b")
    file = the_open_file(tmp_path)
    content = bytearray(file.read_bytes())
    second = content.index(b"TDRJ", content.index(b"TDRJ") + 1)
    content[second + 4 : second + 6] = version.to_bytes(2, "little")
    file.write_bytes(content)

    assert read_all(tmp_path) == ["a"]
