"""`trace-drain store`: results and errors of the commands. tests/e2e/test_backup.py runs whole receivers."""

from __future__ import annotations

import fcntl
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.backup.manifest import read_manifest
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans
from tests.support.random_filters import as_row
from tests.support.rollups import random_spans


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory whose embedded store has spans of three days."""
    with stored_spans(engine_dir, map(json.loads, map(as_row, random_spans(random.Random(1))))) as directory:
        yield directory


def test_backup_without_a_receiver_prints_its_spans_and_what_was_copied(
    data_dir: str, tmp_path: Path
) -> None:
    first = run("store", "backup", str(tmp_path), "--data", data_dir)
    second = run("store", "backup", str(tmp_path), "--data", data_dir)

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    spans, _, copied = first.stdout.partition(": ")
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    days = manifest.rows["otel_traces"]
    assert spans == f"{sum(days.values()):,} spans of {len(days)} days"
    assert f"in {len(manifest.files)} files, with new parts of {len(days)} days" in copied
    assert "copied 0 bytes in 0 files, with new parts of 0 days" in second.stdout
    assert not (Path(data_dir) / "snapshot").exists()


def test_restored_engine_has_the_rows_of_the_backup(data_dir: str, tmp_path: Path) -> None:
    backup = run("store", "backup", str(tmp_path / "backup"), "--data", data_dir)
    # In a process of its own, because a process opens the engine in one directory only.
    command = [sys.executable, "-m", "receiver.cli", "store", "restore", str(tmp_path / "backup")]
    restored = subprocess.run(
        [*command, "--data", str(tmp_path / "data")], capture_output=True, text=True, check=False
    )

    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith(f"{backup.stdout.partition(': ')[0]}, as of ")
    assert restored.stdout.endswith("every checksum and row count agrees\n")
    assert (tmp_path / "data/store/metadata/otel.sql").exists()


def test_backup_beside_another_of_the_same_directory_is_refused(data_dir: str, tmp_path: Path) -> None:
    with (Path(data_dir) / "backup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        result = run("store", "backup", str(tmp_path), "--data", data_dir)

    assert (result.exit_code, "another backup of" in result.stderr) == (1, True)


@each_case(
    ("arguments", "code", "error"),
    [
        (("backup", "DIR", "--data", "none"), 2, "no data directory 'none'"),
        (("backup", "DIR", "--data", "."), 1, "no embedded store in '.'"),
        (("restore", "DIR", "--data", "new"), 1, "there is no directory 'DIR'; expected one with a backup"),
        (("backup", "DIR", "--data", ".", "SERVER"), 2, "which backs up itself by the statement BACKUP"),
        (("restore", "DIR", "--data", ".", "SERVER"), 2, "which backs up itself by the statement BACKUP"),
    ],
)
def test_errors_name_what_is_wrong(
    arguments: tuple[str, ...], code: int, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"TRACE_DRAIN_STORE__URL": "http://127.0.0.1:1"} if "SERVER" in arguments else {}

    result = run("store", *(argument for argument in arguments if argument != "SERVER"), **environ)

    assert (result.exit_code, error in result.stderr) == (code, True), result.output
