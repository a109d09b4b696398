"""Overload: request bodies that exceed the memory limit together, and ten times the receiver's capacity."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.processes import peak_bytes
from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body
from tests.faults.flood import Flood
from tests.faults.variant import IS_LONG, note
from tests.faults.wire import Wire, post_head

MIB = 1 << 20
PATIENCE_S = 1_500 if IS_LONG else 120


@dataclass(frozen=True)
class LargeBodies:
    """How many bodies of which size, and the receiver's limit on bodies in memory."""

    bodies: int
    body_bytes: int
    inflight_bytes_max: int


LARGE = LargeBodies(200, 64 * MIB, 512 * MIB) if IS_LONG else LargeBodies(60, 2 * MIB, 16 * MIB)
MARGIN_BYTES = 128 * MIB
OVERLOAD_S, CAPACITY_S = (60.0, 15.0) if IS_LONG else (8.0, 4.0)
GOODPUT_MIN = 0.8 if IS_LONG else 0.3
"""Minimum share of the capacity. The short variant shares two cores with other tests."""
RECOVERY_S_MAX = 30.0


@contextmanager
def receiver_on_separate_cores(directory: Path, config: str) -> Iterator[ReceiverProcess]:
    """Run a receiver on its own cores, so that the load generator does not take the capacity it measures."""
    cores = os.sched_getaffinity(0)
    others = set(sorted(cores)[1:]) or cores
    os.sched_setaffinity(0, cores - others or cores)
    try:
        with ReceiverProcess(directory, config=config) as running:
            os.sched_setaffinity(0, others)
            yield running
    finally:
        os.sched_setaffinity(0, cores)


def post_padded(address: tuple[str, int], trace: int) -> int:
    """Post a trace padded with white space until it is accepted. Returns the number of retries."""
    body = trace_body(trace)
    padding = memoryview(b" " * MIB)
    retries = 0
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        status = 0
        try:
            with Wire(address) as wire:
                wire.socket.sendall(post_head(LARGE.body_bytes) + body[:-1])
                left_bytes = LARGE.body_bytes - len(body)
                while left_bytes > 0:
                    left_bytes -= wire.socket.send(padding[: min(left_bytes, MIB)])
                wire.socket.sendall(body[-1:])
                status = wire.answer().status
        except OSError:
            status = 0  # the receiver answered and closed before the body was complete
        if status == 200:
            return retries
        assert status in {0, 429, 503}
        retries += 1
        time.sleep(0.1 + 0.1 * (trace % 7))
    raise AssertionError(f"the delivery was not accepted within {PATIENCE_S} s")


@pytest.mark.fault(
    "200 bodies of 64 MiB at once, 8 of which fit: memory stays below its limit, all are stored"
)
@pytest.mark.timeout(1_800)
def test_bodies_beyond_the_memory_limit_are_asked_to_retry_and_memory_stays_bounded(tmp_path: Path) -> None:
    config = (
        f"[limits]\ninflight_bytes_max = {LARGE.inflight_bytes_max}\nbody_bytes_max = {LARGE.body_bytes}\n"
    )
    with ReceiverProcess(tmp_path, config=config) as running:
        intake = int(running.state()["pids"]["intake"][0])
        before_bytes = peak_bytes(intake)
        with ThreadPoolExecutor(LARGE.bodies) as pool:
            retries = sum(pool.map(post_padded, [running.address] * LARGE.bodies, range(1, LARGE.bodies + 1)))
        grew_bytes = peak_bytes(intake) - before_bytes
        traces = {row["TraceId"] for row in running.spans_once_stored(3 * LARGE.bodies)}

    note(f"memory grew by {grew_bytes / MIB:.0f} MiB; {retries} retries")
    assert retries
    assert grew_bytes <= 2 * LARGE.inflight_bytes_max + MARGIN_BYTES
    assert traces == {f"{trace:032x}" for trace in range(1, LARGE.bodies + 1)}


@pytest.mark.fault(
    "ten times the receiver's capacity for a minute: goodput, recovery, and no acknowledged delivery lost"
)
@pytest.mark.timeout(900)
def test_goodput_remains_high_under_ten_times_the_capacity(tmp_path: Path) -> None:
    config = "" if IS_LONG else "[limits]\nanswer_deadline_s = 2\n"
    with receiver_on_separate_cores(tmp_path, config) as running:
        flood = Flood(running.address, first_trace=1)

        async def run() -> tuple[float, float, float]:
            await flood.as_fast_as_answered(CAPACITY_S / 4)
            capacity = await flood.as_fast_as_answered(CAPACITY_S)
            goodput = await flood.at_rate(10 * capacity, OVERLOAD_S)
            recovery_s = await flood.recovered_s(within_s=1.0, patience_s=2 * RECOVERY_S_MAX)
            return capacity, goodput, recovery_s

        capacity, goodput, recovery_s = asyncio.run(run())
        stored = {row["TraceId"] for row in running.spans_once_stored(len(flood.acknowledged))}

    note(f"capacity {capacity:.0f}/s, goodput {goodput:.0f}/s, recovered in {recovery_s:.1f} s")
    assert {reply.status for reply in flood.replies} <= {0, 200, 503}
    assert any(reply.status == 503 for reply in flood.replies)
    assert goodput >= GOODPUT_MIN * capacity
    assert recovery_s < RECOVERY_S_MAX
    assert flood.acknowledged <= stored
