"""A disk without room for the second copy of a segment that a rewrite takes for a moment."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.fake_clickhouse import FakeFile, MemoryStore
from tests.support.redelivery import Harness, Killed


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(FakeFile, "replace", without_room)
    return Harness(tmp_path)


def without_room(_file: FakeFile, _content: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.fault("no room to merge small blocks: they are handed over as they are")
def test_small_blocks_go_as_they_are_and_make_room(harness: Harness) -> None:
    harness.add([0], [1], [2])

    harness.drain()

    assert harness.is_exact
    assert set(harness.copies.values()) == {1.0}
    assert harness.progress.alarms == 0


@pytest.mark.fault("no room to leave a copy out: the segment waits, the others do not")
def test_a_copy_is_never_stored_for_want_of_room(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.add([0, 0], [1])
    other = harness.add([2], [3])
    writer = harness.start()

    writer.drain()
    waiting, gone = harness.files[0].path.exists(), not other.path.exists()
    monkeypatch.undo()
    harness.drain()

    assert (waiting, gone) == (True, True)
    assert set(harness.copies.values()) == {1.0}


def test_what_was_sent_unmerged_is_not_merged_once_there_is_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add([0], [1], [2])
    harness.store.script = ["lost"]
    with monkeypatch.context() as life, suppress(Killed):
        life.setattr(MemoryStore, "counts", killed)
        harness.start().drain()
    monkeypatch.undo()
    merged: list[bytes] = []
    monkeypatch.setattr(FakeFile, "replace", lambda _file, anew: merged.append(anew))
    harness.start()

    harness.drain()

    assert merged == []
    assert set(harness.copies.values()) == {1.0}


def killed(*_: object) -> None:
    raise Killed
