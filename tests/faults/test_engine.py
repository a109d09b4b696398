"""Faults of the embedded engine: killed or failing at chosen system calls, then a writer that recovers."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from receiver.engine.embedded import Bootstrap, EmbeddedStore
from receiver.errors import OperatorError
from tests.faults.engine_child import AGES_DAYS
from tests.faults.variant import IS_LONG
from tests.support.strace import injection, needs_strace, run_child, was_injected

SYNCS = ("1", "7", "1+")
"""Syncs that fail: the first, the seventh, and all."""
RENAMES = 6
"""Renames of one INSERT over three days: each day's part, in the table and in its companion."""


def output_of(directory: Path, *words: str) -> dict[str, Any]:
    """Run a child that must succeed, and return the object that it prints."""
    done = run_child("tests.faults.engine_child", str(directory), *words)
    assert done.returncode == 0, done.stderr[-3_000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run_with_fault(directory: Path, *words: str, call: str, fault: str) -> str:
    """Run a child with a fault, which must occur, and return what it prints."""
    log = directory / "strace"
    done = run_child(
        "tests.faults.engine_child", str(directory), *words, log=log, rules=injection(call, fault)
    )
    assert was_injected(log), done.stderr[-3_000:]
    return done.stdout


def run_killed_at_rename(directory: Path, *words: str, when: int) -> None:
    """Run a child that is killed at its n-th rename."""
    run_with_fault(directory, *words, call="rename", fault=f"signal=SIGKILL:when={when}")


def assert_recovered(directory: Path, count: int) -> None:
    """Start a new writer and assert that every row is stored once and every trace can be looked up."""
    rows = count * len(AGES_DAYS)
    assert output_of(directory, "recover", str(count)) == {
        "wrong": [],
        "rows": [rows, rows, 0],
        "not_in_companion": 0,
        "dead": 0,
        "left": 0,
    }


@needs_strace
@pytest.mark.fault(
    "the store process is killed when the engine renames a part into place; the INSERT is retried"
)
@pytest.mark.timeout(240)
def test_insert_killed_at_a_rename_of_a_part_is_completed(tmp_path: Path) -> None:
    output_of(tmp_path, "create")
    kills = range(1, RENAMES + 1) if IS_LONG else (1, 2, 4)
    for number, when in enumerate(kills, 2):
        run_killed_at_rename(tmp_path, "insert", str(number), when=when)

    assert_recovered(tmp_path, len(kills) + 1)


@needs_strace
@pytest.mark.fault("the writer is killed again while it completes an INSERT, at each rename of a part")
@pytest.mark.timeout(240)
def test_insert_whose_recovery_was_killed_is_completed(tmp_path: Path) -> None:
    output_of(tmp_path, "create")
    run_killed_at_rename(tmp_path, "insert", "2", when=2)
    for when in range(1, RENAMES + 1) if IS_LONG else (1, 2):
        run_killed_at_rename(tmp_path, "recover", "2", when=when)

    assert_recovered(tmp_path, 2)


@needs_strace
@pytest.mark.fault("a sync of the embedded engine fails, once or permanently")
def test_insert_whose_sync_failed_is_reported_as_failed_and_completed(tmp_path: Path) -> None:
    output_of(tmp_path, "create")

    for number, when in enumerate(SYNCS, 2):
        fault = f"error=EIO:when={when}"
        output = run_with_fault(tmp_path, "insert", str(number), call="fdatasync", fault=fault)
        assert json.loads(output)["result"] != "ok", when

    assert_recovered(tmp_path, 1 + len(SYNCS))


@pytest.mark.fault(
    "an INSERT follows a statement that failed in the middle of its result, on the same engine handle"
)
def test_failed_statement_leaves_no_rows_in_the_next_insert(tmp_path: Path) -> None:
    output_of(tmp_path, "create")

    assert output_of(tmp_path, "poisoned")["rows"] == 3 * len(AGES_DAYS)


@pytest.mark.fault("the disk is full while the embedded store is first created, and the process is killed")
@pytest.mark.parametrize("moment", ["open", "schema"])
def test_store_whose_creation_was_interrupted_is_created_again(tmp_path: Path, moment: str) -> None:
    run_child("tests.faults.engine_child", str(tmp_path), "create", moment)
    assert (tmp_path / "data" / "store").exists()
    assert (tmp_path / "data" / "store.creating").exists()

    output_of(tmp_path, "create")

    assert_recovered(tmp_path, 1)
    assert not (tmp_path / "data" / "store.creating").exists()


@pytest.mark.fault("free space is below `journal.disk_free_min` when the embedded store would be created")
def test_store_is_not_created_below_the_minimum_of_free_space(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"free; expected .* \(journal\.disk_free_min\)"):
        EmbeddedStore(
            tmp_path / "store",
            database="otel",
            memory_bytes_max=1 << 30,
            disk_free_min=lambda: 0,
            disk_floor_bytes=1 << 60,
        )

    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("a completely created embedded store fails to open")
def test_completely_created_store_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    (path / "rows").write_text("content")

    Bootstrap(path).begin(disk_free_min=1 << 60)

    assert (path / "rows").read_text() == "content"


def test_store_that_holds_a_part_is_never_removed_even_if_its_creation_was_interrupted(
    tmp_path: Path,
) -> None:
    bootstrap = Bootstrap(tmp_path / "store")
    bootstrap.begin(disk_free_min=0)
    (tmp_path / "store" / "data" / "20260131_1_1_0").mkdir(parents=True)

    bootstrap.begin(disk_free_min=0)

    assert (tmp_path / "store" / "data" / "20260131_1_1_0").exists()


def test_store_that_another_process_is_creating_is_not_removed(tmp_path: Path) -> None:
    bootstrap = Bootstrap(tmp_path / "store")
    bootstrap.begin(disk_free_min=0)
    with (tmp_path / "store" / "status").open("w") as status:
        fcntl.flock(status, fcntl.LOCK_EX)

        bootstrap.begin(disk_free_min=0)

        assert (tmp_path / "store" / "status").exists()


def test_store_whose_table_definitions_are_empty_files_is_incomplete(tmp_path: Path) -> None:
    bootstrap = Bootstrap(tmp_path / "store")
    bootstrap.begin(disk_free_min=0)
    (tmp_path / "store" / "otel_traces.sql").touch()

    assert not bootstrap.end()
    assert bootstrap.is_under_way


@pytest.mark.fault("a row is refused only by the table behind a `Distributed` table")
def test_trial_insert_over_a_distributed_table_reaches_the_table_that_stores_the_rows(tmp_path: Path) -> None:
    assert output_of(tmp_path, "distributed") == {"before": None, "code": 469}


@pytest.mark.fault("the disk refuses writes of an INSERT, and the embedded engine reports no error")
def test_insert_refused_by_the_disk_fails_and_leaves_no_unreadable_part(tmp_path: Path) -> None:
    assert output_of(tmp_path, "full_insert") == {"code": 75, "before": 0, "rows": 3_000}


@pytest.mark.fault("the disk refuses writes while the companion table is refilled")
def test_refill_refused_by_the_disk_fails_and_leaves_no_unreadable_part(tmp_path: Path) -> None:
    assert output_of(tmp_path, "full_refill") == {"code": 75, "traces": 3_000}


@pytest.mark.fault("the disk refuses writes of a merge")
def test_merge_refused_by_the_disk_is_detected_and_undone_by_reopening_the_engine(tmp_path: Path) -> None:
    output = output_of(tmp_path, "full_merge")

    assert "unreadable parts" in output["error"]
    assert output["rows"] == 4_000
