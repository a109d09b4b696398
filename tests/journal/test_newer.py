"""Tests of segments of a newer format version: kept untouched; a corrupted version number is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.durable.files import Disk
from receiver.journal.segments import Journal
from tests.faults.versions import as_version, segments
from tests.support.journal import append, appender


def write_segment(root: Path, kind: str) -> Path:
    """Write a journal with a segment of two records, open or sealed."""
    journal = appender(root=root)
    append(journal, "first")
    append(journal, "second")
    journal.close()
    (path,) = segments(root)
    if kind == "open":
        content = path.read_bytes()[:-52]
        path = path.rename(path.with_name(f"{path.name.partition('.')[0]}.open"))
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_segment_of_a_newer_version_is_neither_listed_nor_changed(kind: str, tmp_path: Path) -> None:
    path = write_segment(tmp_path, kind)
    newer = as_version(path.read_bytes(), 2)
    path.write_bytes(newer)
    journal = Journal(tmp_path)

    assert journal.sealed() == []
    assert journal.sealed() == []
    assert [str(segment) for segment in journal.newer] == [f"{path.parent.name}-{path.name[:10]}"]
    assert path.read_bytes() == newer


@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_segment_of_our_version_is_listed(kind: str, tmp_path: Path) -> None:
    write_segment(tmp_path, kind)
    journal = Journal(tmp_path)

    assert len(journal.sealed()) == 1
    assert journal.newer == []


@pytest.mark.parametrize("bit", range(16))
def test_corrupted_version_number_is_damage(bit: int, tmp_path: Path) -> None:
    path = write_segment(tmp_path, "sealed")
    content = bytearray(path.read_bytes())
    content[12 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    journal = Journal(tmp_path)

    (segment,) = journal.sealed()
    assert segment.damage(segment.scan())
    assert journal.newer == []


def test_held_segments_stay_reported_during_the_next_listing(tmp_path: Path) -> None:
    newer_counts: list[int] = []

    class ObservingDisk(Disk):
        def read(self, path: Path) -> bytes:
            newer_counts.append(len(journals[0].newer) if journals else 0)
            return super().read(path)

    journals: list[Journal] = []
    path = write_segment(tmp_path, "sealed")
    path.write_bytes(as_version(path.read_bytes(), 2))
    journals.append(Journal(tmp_path, ObservingDisk()))
    journals[0].sealed()
    newer_counts.clear()

    journals[0].sealed()

    assert set(newer_counts) == {1}
