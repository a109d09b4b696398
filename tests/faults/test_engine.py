"""The embedded engine's own traps: killed and starved at chosen system calls, then a writer that counts."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from receiver.engine.bootstrap import Bootstrap
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import OperatorError
from tests.faults.engine_child import AGES_DAYS

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
RENAMES = 6
"""Of one INSERT over three days: each day's part, in the table and in its companion."""

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it injects the faults")


def run(directory: Path, *words: str, inject: str = "") -> subprocess.CompletedProcess[str]:
    """Run a child, under strace when a fault is injected."""
    command = [sys.executable, "-B", "-m", "tests.faults.engine_child", str(directory), *words]
    if inject:
        call = inject.partition(":")[0]
        log = str(directory / f"strace-{'-'.join(words)}")
        traced = [str(STRACE), "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={inject}"]
        command = [*traced, *command]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def told_by(directory: Path, *words: str, inject: str = "") -> dict[str, Any]:
    """What a child says that ends well."""
    done = run(directory, *words, inject=inject)
    assert done.returncode == 0, done.stderr[-3_000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def is_met(directory: Path, *words: str) -> bool:
    """Tell whether the fault was met: strace notes it."""
    noted = (directory / f"strace-{'-'.join(words)}").read_text()
    return "(INJECTED)" in noted or "SIGKILL" in noted


def assert_recovered(directory: Path, count: int) -> None:
    """After a new writer, every row of so many segments is there once, and its trace can be looked up."""
    rows = count * len(AGES_DAYS)
    assert told_by(directory, "recover", str(count)) == {
        "wrong": [],
        "rows": [rows, rows, 0],
        "not_in_companion": 0,
        "dead": 0,
        "left": 0,
    }


@needs_strace
@pytest.mark.fault("T1: the store process killed exactly when a part is renamed into place, then the retry")
@pytest.mark.timeout(240)
def test_an_insert_killed_at_any_rename_of_a_part_is_made_good(tmp_path: Path, faults_heavy: bool) -> None:  # noqa: FBT001 - a fixture
    told_by(tmp_path, "create")
    kills = range(1, RENAMES + 1) if faults_heavy else (1, 2, 4)
    for number, when in enumerate(kills, 2):
        run(tmp_path, "insert", str(number), inject=f"rename:signal=SIGKILL:when={when}")
        assert is_met(tmp_path, "insert", str(number))

    assert_recovered(tmp_path, len(kills) + 1)


@needs_strace
@pytest.mark.fault("T1: the writer killed again while it makes an INSERT good, at each rename of a part")
@pytest.mark.timeout(240)
def test_a_repair_that_is_killed_is_made_good(tmp_path: Path, faults_heavy: bool) -> None:  # noqa: FBT001 - a fixture
    told_by(tmp_path, "create")
    run(tmp_path, "insert", "2", inject="rename:signal=SIGKILL:when=2")
    for when in range(1, RENAMES + 1) if faults_heavy else (1, 2):
        run(tmp_path, "recover", "2", inject=f"rename:signal=SIGKILL:when={when}")

    assert is_met(tmp_path, "recover", "2")
    assert_recovered(tmp_path, 2)


@needs_strace
@pytest.mark.fault("a sync of the engine's fails, once and for good")
@pytest.mark.parametrize("when", ["1", "7", "1+"])
def test_an_insert_whose_sync_failed_is_no_ok_and_is_made_good(tmp_path: Path, when: str) -> None:
    told_by(tmp_path, "create")

    told = told_by(tmp_path, "insert", "2", inject=f"fdatasync:error=EIO:when={when}")

    assert is_met(tmp_path, "insert", "2")
    assert told["said"] != "ok"
    assert_recovered(tmp_path, 2)


@pytest.mark.fault("T3: an INSERT on the handle of a statement that failed with rows in hand")
def test_a_statement_that_failed_leaves_nothing_in_the_next_insert(tmp_path: Path) -> None:
    told_by(tmp_path, "create")

    assert told_by(tmp_path, "poisoned")["rows"] == 3 * len(AGES_DAYS)


@pytest.mark.fault("the disk is full while the embedded store is first created, and the process killed")
@pytest.mark.parametrize("moment", ["open", "schema"])
def test_a_store_that_was_never_finished_is_made_anew(tmp_path: Path, moment: str) -> None:
    run(tmp_path, "create", moment)
    assert (tmp_path / "data" / "store").exists()
    assert (tmp_path / "data" / "store.creating").exists()

    told_by(tmp_path, "create")

    assert_recovered(tmp_path, 1)
    assert not (tmp_path / "data" / "store.creating").exists()


@pytest.mark.fault("the disk is at its floor when the embedded store would be created")
def test_a_store_is_not_created_below_the_floor(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"free; expected .* \(journal\.disk_free_min\)"):
        EmbeddedStore(
            tmp_path / "store",
            database="otel",
            memory_bytes_max=1 << 30,
            disk_free_min=lambda: 0,
            disk_floor_bytes=1 << 60,
        )

    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("an embedded store that does not open, and was finished once")
def test_a_store_that_was_finished_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    (path / "rows").write_text("of ours")

    Bootstrap(path).begin(disk_free_min=1 << 60)

    assert (path / "rows").read_text() == "of ours"


def test_a_store_that_holds_a_day_is_never_removed_whatever_lies_beside_it(tmp_path: Path) -> None:
    founding = Bootstrap(tmp_path / "store")
    founding.begin(disk_free_min=0)
    (tmp_path / "store" / "data" / "20260131_1_1_0").mkdir(parents=True)

    founding.begin(disk_free_min=0)

    assert (tmp_path / "store" / "data" / "20260131_1_1_0").exists()


def test_a_store_that_another_process_makes_just_now_is_not_removed(tmp_path: Path) -> None:
    founding = Bootstrap(tmp_path / "store")
    founding.begin(disk_free_min=0)
    with (tmp_path / "store" / "status").open("w") as status:
        fcntl.flock(status, fcntl.LOCK_EX)

        founding.begin(disk_free_min=0)

        assert (tmp_path / "store" / "status").exists()


def test_a_store_whose_tables_are_empty_files_is_not_finished(tmp_path: Path) -> None:
    founding = Bootstrap(tmp_path / "store")
    founding.begin(disk_free_min=0)
    (tmp_path / "store" / "otel_traces.sql").touch()

    assert not founding.end()
    assert founding.is_under_way


@pytest.mark.fault("a row that only the table behind a `Distributed` one refuses")
def test_a_trial_over_a_distributed_table_asks_the_table_that_takes_the_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.distributed_child", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)

    assert done.stdout == "None 469\n", done.stderr
