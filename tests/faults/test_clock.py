"""The wall clock is set while the receiver runs: timers are unaffected and nothing is deleted early."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body

HOUR_S, YEAR_S = 3_600, 31_536_000
DAY_S = 86_400
EXPIRES_IN_S = 6
MERGE_S = 4
"""Time after which expired rows would be gone: an INSERT triggers a merge."""
TRACE_LATER = 1_000
CLOCK_WARNING = "[-] store clock"
CONFIG = "[store]\nretention_days = 1\nlate_margin_days = 0\n"


class WallClock:
    """The wall clock that the receiver reads. The embedded engine reads the kernel's clock directly."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    def set(self, step_s: int) -> None:
        """Set the clock off by `step_s` from now on."""
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
def receiver(wall_clock: WallClock, tmp_path: Path) -> Iterator[ReceiverProcess]:
    assert os.environ["LD_PRELOAD"], wall_clock
    data = tmp_path / "data"
    data.mkdir()
    with ReceiverProcess(data, config=CONFIG) as running:
        yield running


@pytest.mark.fault("the wall clock is set forwards and backwards, by an hour, a day and a year")
@pytest.mark.timeout(300)
def test_clock_step_is_reported_and_no_span_is_lost_or_stored_twice(
    receiver: ReceiverProcess, wall_clock: WallClock
) -> None:
    steps_s = (HOUR_S, -HOUR_S, DAY_S, -DAY_S, YEAR_S, -YEAR_S)
    bodies: list[bytes] = []
    for trace, step_s in enumerate(steps_s, 1):
        wall_clock.set(step_s)
        receiver.wait_for_check(CLOCK_WARNING)
        bodies.append(trace_body(trace))
        # Earlier deliveries, too: the deduplication window does not depend on the wall clock.
        assert {receiver.post(body).status for body in bodies} == {200}
        receiver.wait_until_readable(trace)
        wall_clock.set(0)
        receiver.wait_until(
            lambda: CLOCK_WARNING not in receiver.checks(), "the corrected clock is not trusted again"
        )

    rows = receiver.spans_once_stored(3 * len(steps_s))
    assert Counter(row["TraceId"] for row in rows) == {
        f"{trace + 1:032x}": 3 for trace in range(len(steps_s))
    }


@pytest.mark.fault("spans are due to expire while the wall clock is wrong, and the store process is killed")
@pytest.mark.timeout(240)
def test_nothing_expires_while_the_clock_is_not_trusted(
    receiver: ReceiverProcess, wall_clock: WallClock
) -> None:
    # First, so that the span does not expire earlier on a slow machine.
    wall_clock.set(YEAR_S)
    receiver.wait_for_check(CLOCK_WARNING)
    old_ns = time.time_ns() - (DAY_S - EXPIRES_IN_S) * 10**9
    expired_at_s = time.monotonic() + EXPIRES_IN_S
    assert receiver.post(trace_body(1, old_ns)).status == 200
    receiver.wait_until_readable(1)
    for trace in itertools.count(2):
        assert receiver.post(trace_body(trace)).status == 200
        receiver.wait_until_readable(trace)
        if time.monotonic() > expired_at_s + MERGE_S:
            break
    survived = receiver.is_readable(1)
    receiver.kill(pid_of(receiver, "store"))
    receiver.wait_until(
        lambda: "stays closed" in receiver.log(), "an engine was opened under the wrong clock"
    )
    posted = receiver.post(trace_body(TRACE_LATER)).status
    wall_clock.set(0)
    receiver.wait_until_readable(TRACE_LATER)

    assert survived
    assert posted == 200
    receiver.wait_until(
        lambda: not receiver.is_readable(1), "the expired span remains after the clock was corrected"
    )
