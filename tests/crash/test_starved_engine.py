"""The embedded engine takes refused writes for done; we do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def told_by(directory: Path, what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.starved_engine", str(directory), what],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.fault("T2: the disk refuses writes of an INSERT and the engine does not tell")
def test_an_insert_the_disk_refused_is_no_ok_and_leaves_nothing_that_cannot_be_read(tmp_path: Path) -> None:
    assert told_by(tmp_path, "insert") == {"code": 75, "before": 0, "rows": 3_000}


@pytest.mark.fault("T2: the disk refuses writes of the companion's refill")
def test_a_refill_the_disk_refused_is_trouble_and_no_merge_gone_wrong(tmp_path: Path) -> None:
    assert told_by(tmp_path, "refill") == {"code": 75, "traces": 3_000}


@pytest.mark.fault("T2: the disk refuses writes of a merge")
def test_a_merge_the_disk_refused_is_noticed_and_undone_by_opening_the_engine_anew(tmp_path: Path) -> None:
    told = told_by(tmp_path, "merge")

    assert "unreadable parts" in told["told"]
    assert told["rows"] == 4_000
