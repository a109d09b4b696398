"""The wall clock is set while the receiver runs: timers are unaffected and nothing is deleted early."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess, reply_of
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body

HOUR_S, YEAR_S = 3_600, 31_536_000
DAY_S = 86_400
EXPIRES_IN_S = 6
MERGE_S = 4
"""Time after which expired rows would be gone: an INSERT triggers a merge."""
TRACE_LATER = 1_000
PATIENCE_S = 60
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


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def is_readable(running: ReceiverProcess, trace: int) -> bool:
    base = str(running.state()["urls"]["api"])
    try:
        return reply_of(urllib.request.Request(f"{base}/api/v1/traces/{trace:032x}")).status == 200
    except OSError:
        return False


def clock_warning(running: ReceiverProcess) -> str:
    """Return the line of `/readyz` about the clock."""
    base = str(running.state()["urls"]["admin"])
    text = reply_of(urllib.request.Request(f"{base}/readyz?verbose")).body.decode()
    return next((line for line in text.splitlines() if line.startswith("[-] store clock")), "")


@pytest.mark.fault("the wall clock is set forwards and backwards, by an hour, a day and a year")
@pytest.mark.timeout(300)
def test_clock_step_is_reported_and_no_span_is_lost_or_stored_twice(
    receiver: ReceiverProcess, wall_clock: WallClock
) -> None:
    steps_s = (HOUR_S, -HOUR_S, DAY_S, -DAY_S, YEAR_S, -YEAR_S)
    bodies: list[bytes] = []
    for trace, step_s in enumerate(steps_s, 1):
        wall_clock.set(step_s)
        wait_until(lambda: clock_warning(receiver), f"readyz does not warn of a step of {step_s} s")
        bodies.append(trace_body(trace, time.time_ns()))
        # Earlier deliveries, too: the deduplication window does not depend on the wall clock.
        assert {receiver.post(body).status for body in bodies} == {200}
        wait_until(lambda trace=trace: is_readable(receiver, trace), f"trace {trace} is not readable")  # type: ignore[misc]
        wall_clock.set(0)
        wait_until(lambda: not clock_warning(receiver), "the corrected clock is not trusted again")

    rows = receiver.spans_once_stored(3 * len(steps_s))
    assert Counter(row["TraceId"] for row in rows) == {
        f"{trace + 1:032x}": 3 for trace in range(len(steps_s))
    }


@pytest.mark.fault("spans are due to expire while the wall clock is wrong, and the store process is killed")
@pytest.mark.timeout(240)
def test_nothing_expires_while_the_clock_is_not_trusted(
    receiver: ReceiverProcess, wall_clock: WallClock
) -> None:
    old_ns = time.time_ns() - (DAY_S - EXPIRES_IN_S) * 10**9
    expired_at_s = time.monotonic() + EXPIRES_IN_S
    assert receiver.post(trace_body(1, old_ns)).status == 200
    wait_until(lambda: is_readable(receiver, 1), "the old span is not stored")
    wall_clock.set(YEAR_S)
    wait_until(lambda: clock_warning(receiver), "readyz does not warn")
    for trace in itertools.count(2):
        assert receiver.post(trace_body(trace, time.time_ns())).status == 200
        wait_until(lambda trace=trace: is_readable(receiver, trace), f"trace {trace} is not stored")  # type: ignore[misc]
        if time.monotonic() > expired_at_s + MERGE_S:
            break
    survived = is_readable(receiver, 1)
    receiver.kill(pid_of(receiver, "store"))
    wait_until(lambda: "stays closed" in receiver.log(), "an engine was opened under the wrong clock")
    posted = receiver.post(trace_body(TRACE_LATER, time.time_ns())).status
    wall_clock.set(0)
    wait_until(lambda: is_readable(receiver, TRACE_LATER), "the delivery during the outage is not stored")

    assert survived
    assert posted == 200
    wait_until(lambda: not is_readable(receiver, 1), "the expired span remains after the clock was corrected")
