"""Plans of split segments: they are durable before a piece is inserted, also if the disk fails.

Delivery n has n + 1 rows, all n days old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.json import decode

from receiver.durable.files import DISK
from receiver.writer.splitting import PIECES
from receiver.writer.units import Plan
from tests.support.redelivery import Harness, Killed, refused_at_each_step
from tests.writer.test_splitting import harness_with_row_limit

SEGMENT = "0000000000000007-0000000001"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return harness_with_row_limit(tmp_path)


@contextmanager
def failing_sync(directory: Path, is_due: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Make the sync of a directory fail while `is_due`."""
    sync_directory = DISK.sync_directory

    def fail(path: Path) -> None:
        if path == directory and is_due():
            raise OSError(5, "Input/output error")
        sync_directory(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DISK, "sync_directory", fail)
        yield


@pytest.mark.parametrize("processes", [1, 3], ids=["one process", "a new process for each attempt"])
@pytest.mark.parametrize("unsynced", ["splits", "."])
def test_pieces_are_synced_before_any_is_inserted(harness: Harness, unsynced: str, processes: int) -> None:
    harness.add([5, 4])
    harness.start()
    for attempt in range(3):
        with failing_sync(harness.directory / unsynced):
            harness.run_turns(6)
        if attempt < processes - 1:
            harness.start()

    assert (harness.directory / "splits").exists()
    assert harness.store.parts == []
    harness.drain()
    assert harness.is_exact


@pytest.mark.parametrize("is_restarted", [False, True], ids=["one process", "restarted afterwards"])
def test_any_single_failed_write_neither_duplicates_nor_loses_a_row(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.rows_max = 3
        harness.add([5])

    error = OSError(28, "No space left on device")
    for refusal, harness in refused_at_each_step(
        tmp_path, prepare, lambda harness: harness.run_turns(6), error
    ):
        stored_in_turns = sum(harness.copies.values())
        if is_restarted:
            harness.start()

        harness.drain()

        assert harness.is_exact, f"{refusal}: {harness.copies}"
        assert harness.is_ledger_exact, f"{refusal}: {harness.recorded}"
        assert not harness.dead_letters
        assert list((harness.directory / "splits").glob(".*")) == [], refusal
    # The turns were enough to insert a piece, so the refusals met every call before and after it.
    assert stored_in_turns > 0


def test_piece_that_was_split_is_not_inserted_after_a_failed_sync_of_its_plan(tmp_path: Path) -> None:
    harness = harness_with_row_limit(tmp_path, rows_max=1)
    splits = tmp_path / "splits"

    def planned() -> set[int]:
        return {
            piece.seq for path in splits.iterdir() for piece in decode(path.read_bytes(), type=Plan).pieces
        }

    harness.add([5])
    harness.start()
    with failing_sync(splits, lambda: max(planned()) > PIECES):
        harness.run_turns(20)
    pieces, tokens_before = planned(), len(harness.store.tokens)
    assert max(pieces) > PIECES
    harness.store.rows_max = None

    harness.drain()

    inserted = {int(token[17:27]) for token in harness.store.tokens[tokens_before:]}
    assert inserted == pieces
    assert harness.is_exact


def test_unknown_file_in_the_split_directory_is_not_touched(harness: Harness) -> None:
    splits = harness.directory / "splits"
    names = ["notes.native", ".keep", f"{SEGMENT}.backup", f"{SEGMENT}.0000000000000009"]
    unknown = [splits / name for name in names]
    splits.mkdir()
    for path in unknown:
        path.write_text("not a plan")
    harness.add([5, 4])

    harness.start().drain()
    harness.drain()

    assert harness.is_exact
    assert sorted(splits.iterdir()) == sorted(unknown)


@pytest.mark.parametrize("takes_whole", [True, False])
def test_plan_that_was_renamed_but_not_synced_stays_in_force(harness: Harness, *, takes_whole: bool) -> None:
    harness.store.rows_max = None if takes_whole else 3
    harness.store.script = ["error:241"] * 3
    harness.add([5, 4])
    splits = harness.directory / "splits"

    with failing_sync(splits):
        harness.start()
        harness.run_turns(4)
    plans = list(splits.iterdir())
    harness.run_turns(2)

    assert list(splits.iterdir()) == plans
    assert 0 < sum(harness.copies.values()) < 2
    harness.start()
    harness.drain()
    assert harness.is_exact
    assert list(splits.iterdir()) == []


@pytest.mark.fault("a damaged plan of a split segment")
def test_damaged_plan_of_a_split_segment_is_reported_as_a_stall(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start()
    harness.run_turns(4)
    (plan,) = (harness.directory / "splits").iterdir()
    content = plan.read_bytes()
    plan.write_bytes(content[:-3])
    parts = list(harness.store.parts)

    harness.start()
    harness.run_turns(3)

    assert "makes no progress" in harness.progress.stall_reason
    assert harness.progress.alarms == 1
    assert harness.store.parts == parts
    plan.write_bytes(content)
    harness.drain()
    assert harness.is_exact
    assert harness.progress.stall_reason == ""


@pytest.mark.parametrize("is_readable", [True, False], ids=["readable plan", "unreadable plan at first"])
def test_pieces_of_an_earlier_process_are_counted_first(harness: Harness, *, is_readable: bool) -> None:
    harness.add([5, 4])
    harness.start()
    harness.run_turns(3)
    harness.store.script = ["answer_lost"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.store, "running", _killed)
        with pytest.raises(Killed):
            harness.run_turns(1)
    (plan,) = (harness.directory / "splits").iterdir()
    content = plan.read_bytes()
    harness.store.used_tokens.clear()
    plan.write_bytes(content if is_readable else b"")
    harness.start().drain()
    plan.write_bytes(content)

    harness.drain()

    assert harness.is_exact


def _killed(_prefix: str) -> list[str]:
    raise Killed
