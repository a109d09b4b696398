"""Tests of the embedded engine when the disk refuses writes: it can report refused writes as successful."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def output_of(directory: Path, scenario: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.starved_engine", str(directory), scenario],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.fault("the disk refuses writes of an INSERT, and the embedded engine reports no error")
def test_insert_refused_by_the_disk_fails_and_leaves_no_unreadable_part(tmp_path: Path) -> None:
    assert output_of(tmp_path, "insert") == {"code": 75, "before": 0, "rows": 3_000}


@pytest.mark.fault("the disk refuses writes while the companion table is refilled")
def test_refill_refused_by_the_disk_fails_and_leaves_no_unreadable_part(tmp_path: Path) -> None:
    assert output_of(tmp_path, "refill") == {"code": 75, "traces": 3_000}


@pytest.mark.fault("the disk refuses writes of a merge")
def test_merge_refused_by_the_disk_is_detected_and_undone_by_reopening_the_engine(tmp_path: Path) -> None:
    output = output_of(tmp_path, "merge")

    assert "unreadable parts" in output["error"]
    assert output["rows"] == 4_000
