"""The wall clock is set while the receiver runs: timers do not care, and it deletes nothing."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Running, reply_of
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body

HOUR_S, YEAR_S = 3_600, 31_536_000
DAY_S = 86_400
EXPIRES_IN_S = 6
MERGE_S = 4
"""What is expired would be gone by then: an INSERT sets a merge off."""
TRACE_LATER = 1_000
PATIENCE_S = 60
CONFIG = "[store]\nretention_days = 1\nlate_margin_days = 0\n"


class WallClock:
    """What the receiver takes for the wall clock. The engine has its own way to the kernel's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    def set(self, step_s: int) -> None:
        """Be so far off from now on."""
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("=q", step_s))


@pytest.fixture
def wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    compiler = shutil.which("cc")
    assert compiler, "cc is missing; expected the compiler that links the Rust core"
    library = tmp_path / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    clock = WallClock(tmp_path / "step")
    monkeypatch.setenv("WALL_CLOCK_STEP", str(tmp_path / "step"))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return clock


@pytest.fixture
def receiver(wall_clock: WallClock, tmp_path: Path) -> Iterator[Running]:
    assert os.environ["LD_PRELOAD"], wall_clock
    data = tmp_path / "data"
    data.mkdir()
    with Running(data, config=CONFIG) as running:
        yield running


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def is_readable(running: Running, trace: int) -> bool:
    base = str(running.state()["urls"]["api"])
    try:
        return reply_of(urllib.request.Request(f"{base}/api/v1/traces/{trace:032x}")).status == 200
    except OSError:
        return False


def warning(running: Running) -> str:
    """What readyz says of the clock."""
    base = str(running.state()["urls"]["admin"])
    text = reply_of(urllib.request.Request(f"{base}/readyz?verbose")).body.decode()
    return next((line for line in text.splitlines() if line.startswith("[-] store clock")), "")


@pytest.mark.fault("the wall clock is set by an hour and by a year, forwards and backwards")
@pytest.mark.timeout(240)
def test_a_step_of_the_clock_is_told_and_takes_nothing_away(receiver: Running, wall_clock: WallClock) -> None:
    steps_s = (HOUR_S, -HOUR_S, YEAR_S, -YEAR_S)
    for trace, step_s in enumerate(steps_s, 1):
        wall_clock.set(step_s)
        until(lambda: warning(receiver), f"readyz warns of a step of {step_s} s")
        assert receiver.post(trace_body(trace, time.time_ns())).status == 200
        until(lambda trace=trace: is_readable(receiver, trace), f"trace {trace} is readable")  # type: ignore[misc]
        wall_clock.set(0)
        until(lambda: not warning(receiver), "a clock that is right again is believed")

    assert all(is_readable(receiver, trace) for trace in range(1, len(steps_s) + 1))


@pytest.mark.fault("spans are due to expire while the wall clock is wrong, and the store is killed then")
@pytest.mark.timeout(240)
def test_nothing_expires_while_the_clock_is_not_believed(receiver: Running, wall_clock: WallClock) -> None:
    old_ns = time.time_ns() - (DAY_S - EXPIRES_IN_S) * 10**9
    expired_at_s = time.monotonic() + EXPIRES_IN_S
    assert receiver.post(trace_body(1, old_ns)).status == 200
    until(lambda: is_readable(receiver, 1), "it is stored")
    wall_clock.set(YEAR_S)
    until(lambda: warning(receiver), "readyz warns")
    for trace in itertools.count(2):
        assert receiver.post(trace_body(trace, time.time_ns())).status == 200
        until(lambda trace=trace: is_readable(receiver, trace), "the store works on")  # type: ignore[misc]
        if time.monotonic() > expired_at_s + MERGE_S:
            break
    survived = is_readable(receiver, 1)
    receiver.kill(pid_of(receiver, "store"))
    until(lambda: "stays closed" in receiver.log(), "no engine is opened with that clock")
    posted = receiver.post(trace_body(TRACE_LATER, time.time_ns())).status
    wall_clock.set(0)
    until(lambda: is_readable(receiver, TRACE_LATER), "what came meanwhile is stored")

    assert survived
    assert posted == 200
    until(lambda: not is_readable(receiver, 1), "once the clock is believed what is old goes")
