"""Tests that the lists of tiers and of the CPU limit name files and tests that exist."""

from __future__ import annotations

from pathlib import Path

from tests.support.cpu_limit import REASONS
from tests.support.tiers import FAULT_TIER, PROMISES, has_only_fault_tier, is_fault_tier, promise_tests

ROOT = Path(__file__).parents[2]


def is_missing(entry: str) -> bool:
    file, _, test = entry.partition("::")
    path, function = ROOT / file, test.partition("[")[0]
    return not path.exists() or (function != "" and f"def {function}(" not in path.read_text())


def test_every_entry_of_the_tiers_exists() -> None:
    fault_tests = (path for promise in PROMISES for path in promise.fault_tests)

    assert [
        entry for entry in (*FAULT_TIER, *REASONS, *promise_tests(), *fault_tests) if is_missing(entry)
    ] == []


def test_make_test_runs_the_test_of_each_promise() -> None:
    assert [test for test in promise_tests() if is_fault_tier(test)] == []
    assert [test for test in promise_tests() if has_only_fault_tier(test.partition("::")[0])] == []
