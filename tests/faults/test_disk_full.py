"""A disk without room for the temporary second copy that rewriting a segment needs."""

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


@pytest.mark.fault("no disk space to merge small blocks: they are inserted unmerged")
def test_small_blocks_are_inserted_unmerged_and_free_space(harness: Harness) -> None:
    harness.add([0], [1], [2])

    harness.drain()

    assert harness.is_exact
    assert set(harness.copies.values()) == {1.0}
    assert harness.progress.alarms == 0


@pytest.mark.fault("no disk space to remove a duplicate from a segment: that segment waits, others proceed")
def test_duplicate_is_not_stored_for_lack_of_disk_space(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add([0, 0], [1])
    other = harness.add([2], [3])
    writer = harness.start()

    writer.drain()
    waits, is_deleted = harness.files[0].path.exists(), not other.path.exists()
    monkeypatch.undo()
    harness.drain()

    assert (waits, is_deleted) == (True, True)
    assert set(harness.copies.values()) == {1.0}


def test_blocks_sent_unmerged_are_not_merged_when_there_is_room_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add([0], [1], [2])
    harness.store.script = ["answer_lost"]
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(MemoryStore, "counts", kill)
        harness.start().drain()
    monkeypatch.undo()
    merged: list[bytes] = []
    monkeypatch.setattr(FakeFile, "replace", lambda _file, content: merged.append(content))
    harness.start()

    harness.drain()

    assert merged == []
    assert set(harness.copies.values()) == {1.0}


def kill(*_: object) -> None:
    raise Killed
