"""The store process is killed while it derives rollups, drops expired rows or replays dead letters.

It is killed at its n-th rename of a file after the work began. Each part of a table, each plan and each log
becomes visible by a rename, so a kill there separates two steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess, environment
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body
from tests.support.redelivery import Harness
from tests.support.segments import day_of
from tests.support.strace import attached, injection, needs_strace

HOUR_NS = 3_600 * 10**9
DAY_S = 86_400
SPANS = 3
NTH_RENAMES = (1, 3, 6)
FIRST_MARKER = 0x1000
"""Traces that show that the store process works: see `wait_until_working`."""
EXPIRES_IN_S = 6
WORK_S_MAX = 30.0

pytestmark = [pytest.mark.timeout(400), needs_strace]


@contextmanager
def killed_at_rename(running: ReceiverProcess, nth: int) -> Iterator[Callable[[], bool]]:
    """Kill the store process at its n-th rename from now. Yields a function that returns whether it was."""
    rules = injection("rename,renameat,renameat2", f"signal=KILL:when={nth}")
    with attached(pid_of(running, "store"), running.data / "strace", rules) as strace:
        yield lambda: strace.poll() is not None


def wait_some_time(condition: Callable[[], bool], wait_s: float = WORK_S_MAX) -> None:
    """Wait for a condition that need not become true."""
    deadline_s = time.monotonic() + wait_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.1)


def wait_until_working(running: ReceiverProcess, marker: int) -> None:
    """Wait until a new trace is stored, so that the start of the store process is over."""
    running.wait_until_ready()
    assert running.post(trace_body(marker)).status == 200
    running.wait_until_readable(marker)


def run_and_kill(running: ReceiverProcess, *command: str) -> int:
    """Run a command of the receiver again and again, and kill the store process at different renames of it.

    Returns how often it was killed.
    """
    killed = 0
    wait_until_working(running, FIRST_MARKER)
    for nth in NTH_RENAMES:
        line = [sys.executable, "-m", "receiver.cli", *command, "--data", str(running.data)]
        with killed_at_rename(running, nth) as is_killed:
            with (running.data / "log").open("ab") as log:
                work = subprocess.Popen(line, stdout=log, stderr=log, env=environment())
            wait_some_time(lambda work=work: is_killed() or work.poll() is not None)  # type: ignore[misc]
            killed += is_killed()
            work.kill()
            work.wait()
        wait_until_working(running, FIRST_MARKER + nth)
    return killed


def copies_of_traces(running: ReceiverProcess) -> Counter[str]:
    lines = running.command("spans", "--since", "9d", "--format", "jsonl", "--limit", "10000").splitlines()
    copies = Counter(str(json.loads(line)["TraceId"]) for line in lines)
    markers = {f"{FIRST_MARKER + nth:032x}" for nth in (0, *NTH_RENAMES)}
    assert {copies.pop(marker, SPANS) for marker in markers} == {SPANS}
    return copies


@pytest.mark.fault("the store process is killed while it derives rollups")
def test_store_process_that_is_killed_while_it_derives_rollups_loses_nothing(tmp_path: Path) -> None:
    config = "[store]\nrollup_closing_age_s = 60\n"
    traces = range(1, 9)
    with ReceiverProcess(tmp_path, config=config) as running:
        for trace in traces:
            assert running.post(trace_body(trace, time.time_ns() - trace * HOUR_NS)).status == 200
        running.spans_once_stored(SPANS * len(traces))
        killed = run_and_kill(running, "rollup", "rebuild")
        running.command("rollup", "rebuild")
        services = json.loads(running.command("services", "--since", "24h", "--format", "jsonl"))
        ledger = running.run_command("ledger", "--verify")
        copies = copies_of_traces(running)

    assert killed
    assert copies == {f"{trace:032x}": SPANS for trace in traces}
    assert services["spans"] == SPANS * (len(traces) + len(NTH_RENAMES) + 1)
    assert ledger.returncode == 0, ledger.stdout


@pytest.mark.fault("the store process is killed while it replays dead letters")
def test_store_process_that_is_killed_while_it_replays_dead_letters_stores_each_row_once(
    tmp_path: Path,
) -> None:
    ages_days = range(1, 6)
    harness = Harness(tmp_path)
    for age in ages_days:
        harness.add([age])
    harness.store.poisonous_days = {day_of(age) for age in ages_days}
    harness.drain()

    with ReceiverProcess(tmp_path) as running:
        killed = run_and_kill(running, "dead", "replay", "--all")
        running.run_command("dead", "replay", "--all")
        running.wait_until_stored()
        copies = copies_of_traces(running)
        letters = running.command("dead", "ls", "--format", "json")
        ledger = running.run_command("ledger", "--verify", "--since", "9d")

    assert killed
    assert copies == {f"{age + 1:032x}": age + 1 for age in ages_days}
    assert letters.strip() == ""
    assert ledger.returncode == 0, ledger.stdout


@pytest.mark.fault("the store process is killed while it drops expired rows")
def test_store_process_that_is_killed_while_it_drops_expired_rows_keeps_all_others(tmp_path: Path) -> None:
    old, fresh, killed = 1, 2, 0
    with ReceiverProcess(tmp_path, config="[store]\nretention_days = 1\nlate_margin_days = 0\n") as running:
        expires_at_s = time.monotonic() + EXPIRES_IN_S
        assert running.post(trace_body(old, time.time_ns() - (DAY_S - EXPIRES_IN_S) * 10**9)).status == 200
        wait_some_time(lambda: time.monotonic() > expires_at_s)
        for nth in NTH_RENAMES:
            with killed_at_rename(running, nth) as is_killed:
                # An INSERT triggers the merge that drops expired rows.
                assert running.post(trace_body(fresh)).status == 200
                wait_some_time(is_killed, WORK_S_MAX / 2)
                killed += is_killed()
            running.wait_until_ready()
            running.wait_until_readable(fresh)
            fresh += 1
        running.wait_until(lambda: not running.is_readable(old), "the expired span is not dropped")
        copies = copies_of_traces(running)
        ledger = running.run_command("ledger")

    assert killed
    assert copies == {f"{trace:032x}": SPANS for trace in range(2, fresh)}
    assert ledger.returncode == 0, ledger.stdout
