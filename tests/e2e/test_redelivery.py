"""The same body sent repeatedly while processes are killed: answered 200 each time and stored once."""

from __future__ import annotations

import gzip
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import RETRYABLE, SPANS_PER_REQUEST, pid_of, trace_body

COPIES = 10
PATIENCE_S = 60


def post_until_acknowledged(running: ReceiverProcess, body: bytes, **headers: str) -> int:
    """Post with retries as an OTLP exporter does. Returns the number of answers other than 200."""
    deadline = time.monotonic() + PATIENCE_S
    failures = 0
    while time.monotonic() < deadline:
        try:
            status = running.post(body, **headers).status
        except (OSError, ValueError, KeyError):
            status = 503
        if status == 200:
            return failures
        assert status in RETRYABLE
        failures += 1
        time.sleep(0.2)
    raise AssertionError(f"the delivery was not acknowledged in {PATIENCE_S} s: {running.log()}")


@pytest.mark.fault("the same delivery ten times, compressed differently, while processes are killed")
@pytest.mark.timeout(240)
def test_body_sent_ten_times_is_stored_once_while_processes_are_killed(fresh_dir: Path) -> None:
    body, other = trace_body(1), trace_body(2)
    with ReceiverProcess(fresh_dir, "--intakes", "2") as running:
        for copy in range(COPIES):
            if copy in {3, 7}:
                running.kill(pid_of(running, "store"))
            if copy in {2, 5}:
                running.kill(pid_of(running, "intake"))
            if copy == 8:
                running.stop()
                running.start()
            headers = {"content_encoding": "gzip"} if copy % 2 else {}
            sent = gzip.compress(body, mtime=copy, compresslevel=1 + copy % 9) if headers else body
            post_until_acknowledged(running, sent, **headers)
            time.sleep(0.3 * (copy % 3))
        post_until_acknowledged(running, other)
        running.wait_until_ready()
        rows = running.spans_once_stored(2 * SPANS_PER_REQUEST)
        metrics = running.metrics()

    assert Counter(row["TraceId"] for row in rows) == {
        f"{1:032x}": SPANS_PER_REQUEST,
        f"{2:032x}": SPANS_PER_REQUEST,
    }
    assert 'trace_drain_deliveries_duplicate_total{drain="default"}' in metrics


@pytest.mark.timeout(120)
def test_drain_with_dedupe_off_stores_every_copy(fresh_dir: Path) -> None:
    config = '[[drain]]\nname = "every"\ndedupe = false\n'
    with ReceiverProcess(fresh_dir, config=config) as running:
        for _ in range(3):
            post_until_acknowledged(running, trace_body(1))
        rows = running.spans_once_stored(3 * SPANS_PER_REQUEST)

    assert len(rows) == 3 * SPANS_PER_REQUEST
