"""Segments of a newer version are left alone; one whose version rotted is damaged like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.durable.files import Disk
from receiver.journal.newer import VERSION
from receiver.journal.segments import Journal
from tests.faults.versions import as_version, segments
from tests.support.journal import append, appender


def written(root: Path, kind: str) -> Path:
    """A journal with one segment of two records: left open, or sealed."""
    writing = appender(root=root)
    append(writing, "first")
    append(writing, "second")
    writing.close()
    (path,) = segments(root)
    if kind == "open":
        content = path.read_bytes()[:-52]
        path = path.rename(path.with_name(f"{path.name.partition('.')[0]}.open"))
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_a_segment_of_a_newer_version_is_neither_listed_nor_touched(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    newer = as_version(path.read_bytes(), VERSION + 1)
    path.write_bytes(newer)
    journal = Journal(tmp_path)

    assert journal.sealed() == []
    assert journal.sealed() == []
    assert [str(segment) for segment in journal.held] == [f"{path.parent.name}-{path.name[:10]}"]
    assert path.read_bytes() == newer


@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_a_segment_of_our_version_is_listed(kind: str, tmp_path: Path) -> None:
    written(tmp_path, kind)
    journal = Journal(tmp_path)

    assert len(journal.sealed()) == 1
    assert journal.held == []


@pytest.mark.parametrize("bit", range(16))
def test_a_version_that_rotted_is_no_newer_one(bit: int, tmp_path: Path) -> None:
    path = written(tmp_path, "sealed")
    content = bytearray(path.read_bytes())
    content[12 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    journal = Journal(tmp_path)

    (found,) = journal.sealed()
    assert found.damage(found.scan())
    assert journal.held == []


def test_what_is_held_is_told_while_the_next_look_is_under_way(tmp_path: Path) -> None:
    told: list[int] = []

    class Peeking(Disk):
        def read(self, path: Path) -> bytes:
            told.append(len(journals[0].held) if journals else 0)
            return super().read(path)

    journals: list[Journal] = []
    path = written(tmp_path, "sealed")
    path.write_bytes(as_version(path.read_bytes(), VERSION + 1))
    journals.append(Journal(tmp_path, Peeking()))
    journals[0].sealed()
    told.clear()

    journals[0].sealed()

    assert set(told) == {1}
