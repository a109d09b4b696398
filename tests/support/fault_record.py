"""Pytest plugin that records results of the fault tests: `-p tests.support.fault_record --faults-json FILE`.

Tests that did not run keep their previous results in the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import pytest

from tests.faults.variant import IS_LONG
from tests.torture.report import commit


class Outcome(TypedDict):
    """Result of the last run of a fault test."""

    at: str
    commit: str
    variant: str
    passed: int
    failed: int
    skipped: int
    seconds: float


class Recorder:
    """Results of the fault tests of this session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = defaultdict(self._new)

    def _new(self) -> Outcome:
        return Outcome(
            at=datetime.now(UTC).date().isoformat(),
            commit=commit(),
            variant="long" if IS_LONG else "short",
            passed=0,
            failed=0,
            skipped=0,
            seconds=0.0,
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a run of a test. An error during set-up counts as a failure."""
        if "fault" not in report.keywords or (report.when != "call" and report.passed):
            return
        outcome = self._outcomes[report.nodeid.partition("[")[0]]
        outcome[report.outcome] += 1
        outcome["seconds"] = round(outcome["seconds"] + report.duration, 1)
        self._write()

    def _write(self) -> None:
        """Merge the results into the file after each test, because the session may be interrupted."""
        known: dict[str, Outcome] = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(known | self._outcomes, indent=1, sort_keys=True) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-json", type=Path, help="file for the results of the fault tests")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--faults-json")
    if path is not None:
        config.pluginmanager.register(Recorder(path))
