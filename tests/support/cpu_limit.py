"""Pytest plugin that fails tests with too much CPU time: `-p tests.support.cpu_limit --cpu-s-max 3`.

Counts the call of a test in this process and its children, not the fixtures, which tests share. Long tests
belong to the fault tier (`tests/support/tiers.py`), or have a reason in `REASONS`. CPU time depends on the
machine and on what else runs there, so the limit is multiplied by the slowdown of a reference loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from tests.support.tiers import is_within, promise_tests

REASONS: Final = {
    "tests/cli/test_rollup.py": "each test derives the rollups of three days",
    "tests/console/tools/clickhouse_http/test_contract.py": "every format is requested in three ways",
    "tests/console/tools/clickhouse_http/test_statements.py": "each test sends a hundred statements",
    "tests/platform/deployment_events/test_killed.py": "the engine runs in a process that is killed",
    "tests/e2e/test_conformance_bodies.py": "a whole receiver answers two hundred requests",
    "tests/engine/test_development_table.py": "every documented command, on a table of an earlier version",
    "tests/engine/test_data_directory.py": "the engine runs in a process for each directory",
    "tests/ledger/test_writer.py": "a kill at each step, and a new writer after it",
    "tests/console/queries/test_projects.py": "every route is called as several users",
    "tests/console/queries/test_raw_sql.py": "each test sends a hundred statements",
    "tests/redelivery/test_redelivery.py": "a kill at each step, and a new writer after it",
    "tests/console/rollup": "each test derives and proves the rollups of three days, several times",
    "tests/console/ui/test_browser.py": "pages in a browser",
    "tests/console/ui/test_browser_lists.py": "pages in a browser",
    "tests/console/ui/test_browser_pages.py": "pages in a browser",
    "tests/console/ui/test_trace_views.py": "pages in a browser",
    "tests/platform/pages/test_install_in_browser.py": "pages in a browser",
    "tests/platform/explain/test_page.py": "pages in a browser",
    "tests/testing/emulator/test_control_page_in_browser.py": "pages in a browser",
    "tests/writer/test_any_fault.py": "random faults at each step of many segments",
    "tests/writer/test_poison.py": "a kill at each step of a search, and a new writer after it",
}
"""Tests that may take longer: folders, files or tests, and why."""
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
LOOP_COUNT: Final = 12_000_000
LOOP_S: Final = 0.16
"""CPU time of the reference loop on the idle machine with two cores for which the limit was set."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the limit."""
    parser.addoption("--cpu-s-max", type=float, default=3.0, help="CPU seconds that a test may take")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passes, but takes too long."""
    before_s = cpu_s()
    result = yield
    used_s, limit_s = cpu_s() - before_s, item.config.getoption("--cpu-s-max")
    if (
        used_s > limit_s
        and not is_within(item.nodeid, (*REASONS, *promise_tests()))
        and used_s > limit_s * slowdown()
    ):
        pytest.fail(
            f"the test takes {used_s:.1f} s of CPU time; expected at most {limit_s:g} s: make it smaller, "
            "add it to FAULT_TIER in tests/support/tiers.py, or add a reason to tests/support/cpu_limit.py"
        )
    return result


def slowdown() -> float:
    """Return how many times more CPU time the reference loop takes now than on an idle machine."""
    start_s = time.thread_time()
    for _ in range(LOOP_COUNT):
        pass
    return (time.thread_time() - start_s) / LOOP_S


def cpu_s() -> float:
    """Return the CPU time of this process, its ended children and, on Linux, its running children.

    Linux may leave running children out of its list while a thread or another child ends; the largest of
    three readings has them.
    """
    return max(_cpu_s_once() for _ in range(3))


def _cpu_s_once() -> float:
    times = os.times()
    ended_s = times.user + times.system + times.children_user + times.children_system
    return ended_s + sum(map(_running_s, _children(os.getpid())))


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    # Another system, or the process has ended.
    except OSError:
        return []


def _running_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S + sum(map(_running_s, _children(pid)))
