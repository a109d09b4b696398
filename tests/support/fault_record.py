"""Pytest plugin that records the fault cases: `-p tests.support.fault_record --faults-json FILE`.

Cases that did not run keep what the file said of them before.
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
    """What became of one case the last time it ran."""

    at: str
    commit: str
    variant: str
    passed: int
    failed: int
    skipped: int
    seconds: float


class Recorder:
    """What was seen in this session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, Outcome] = defaultdict(self._new)

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
        """Count one of a case's runs. What breaks in its set-up failed too."""
        if "fault" not in report.keywords or (report.when != "call" and report.passed):
            return
        outcome = self._seen[report.nodeid.partition("[")[0]]
        outcome[report.outcome] += 1
        outcome["seconds"] = round(outcome["seconds"] + report.duration, 1)
        self._write()

    def _write(self) -> None:
        """What was seen over what was known, after every case: a session may be broken off."""
        known: dict[str, Outcome] = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(known | self._seen, indent=1, sort_keys=True) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-json", type=Path, help="where to keep what became of the fault cases")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--faults-json")
    if path is not None:
        config.pluginmanager.register(Recorder(path))
