"""A segment that is stuck in a running receiver does not delay the spans that are sent after it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body
from tests.support.strace import attached, injection, needs_strace

DAY_NS = 86_400 * 10**9
FRESH = range(2, 6)
"""Traces that are sent after the stuck segment."""


def post_and_wait_until_sealed(running: ReceiverProcess, body: bytes) -> None:
    """Send the delivery that will be stuck. Later spans must be in other segments."""
    assert running.post(body).status == 200
    running.wait_until(
        lambda: all(path.suffix != ".open" for path in running.backlog()), "the segment is not sealed"
    )


def post_and_wait_for_fresh_spans(running: ReceiverProcess) -> None:
    for trace in FRESH:
        assert running.post(trace_body(trace)).status == 200
        running.wait_until_readable(trace)


def body_over_days(days: int) -> bytes:
    """Return a body with one span on each of the past days."""
    now_ns = time.time_ns()
    spans = [
        {
            "traceId": f"{1_000_000 + age:032x}",
            "spanId": f"{age + 1:016x}",
            "startTimeUnixNano": str(now_ns - age * DAY_NS),
        }
        for age in range(days)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def segment_path(running: ReceiverProcess, seq: int) -> Path:
    """Return the path of a sealed segment, which may not exist yet."""
    (epoch,) = (path for path in (running.data / "journal").iterdir() if path.is_dir())
    return epoch / f"{seq:010d}.native.lz4"


@needs_strace
@pytest.mark.fault("EIO when the store process reads a segment")
@pytest.mark.timeout(240)
def test_unreadable_segment_delays_no_later_span_and_is_named_by_the_health_check(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path) as running:
        store, unreadable = pid_of(running, "store"), [segment_path(running, 0)]
        with attached(store, tmp_path / "strace", injection("openat", "error=EIO"), unreadable):
            post_and_wait_until_sealed(running, trace_body(1))
            post_and_wait_for_fresh_spans(running)
            checks = running.checks()
            is_stored_despite_the_fault = running.is_readable(1)
        running.wait_until_readable(1)
        copies = [row["TraceId"] for row in running.spans_once_stored(3 * (len(FRESH) + 1))]

    assert "makes no progress: the disk cannot read or delete it: Input/output error" in checks
    assert not is_stored_despite_the_fault
    assert len(copies) == 3 * (len(FRESH) + 1)


@pytest.mark.fault("a valid delivery over 900 days")
@pytest.mark.timeout(240)
def test_later_spans_are_readable_while_a_delivery_over_many_days_is_stored_in_pieces(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, config="[store]\nretention_days = 0\n") as running:
        post_and_wait_until_sealed(running, body_over_days(900))
        post_and_wait_for_fresh_spans(running)
        plans = list((tmp_path / "splits").iterdir())

    assert len(plans) == 1
