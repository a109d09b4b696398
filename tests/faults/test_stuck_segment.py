"""A segment that is stuck in a running receiver does not delay the spans that are sent after it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess, reply_of
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body

PATIENCE_S = 60.0
DAY_NS = 86_400 * 10**9
FRESH = range(2, 6)
"""Traces that are sent after the stuck segment."""


def is_readable(running: ReceiverProcess, trace: int) -> bool:
    base = str(running.state()["urls"]["api"])
    return reply_of(urllib.request.Request(f"{base}/api/v1/traces/{trace:032x}")).status == 200


def wait_until_readable(running: ReceiverProcess, trace: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_readable(running, trace):
        assert time.monotonic() < deadline_s, f"trace {trace} is not readable: {running.checks()}"
        time.sleep(0.1)


def post_and_wait_until_sealed(running: ReceiverProcess, body: bytes) -> None:
    """Send the delivery that will be stuck. Later spans must be in other segments."""
    assert running.post(body).status == 200
    while any(path.suffix == ".open" for path in running.backlog()):
        time.sleep(0.1)


def post_and_wait_for_fresh_spans(running: ReceiverProcess) -> None:
    for trace in FRESH:
        assert running.post(trace_body(trace, time.time_ns())).status == 200
        wait_until_readable(running, trace)


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


@contextmanager
def unreadable_segments(running: ReceiverProcess, seqs: range, log: Path) -> Iterator[None]:
    """Make the store process fail to open the segments with these numbers, which may not exist yet."""
    (epoch,) = (path for path in (running.data / "journal").iterdir() if path.is_dir())
    paths = [word for seq in seqs for word in ("-P", str(epoch / f"{seq:010d}.native.lz4"))]
    rule = ["-e", "trace=openat", "-e", "inject=openat:error=EIO"]
    command = ["strace", "-f", "-p", str(pid_of(running, "store")), *rule, *paths, "-o", str(log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        try:
            if b"attached" not in strace.stderr.readline():
                pytest.skip("strace may not attach here")
            yield
        finally:
            strace.send_signal(signal.SIGINT)


@pytest.mark.fault("EIO when the store process reads a segment")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed; it injects the fault")
@pytest.mark.timeout(240)
def test_unreadable_segment_delays_no_later_span_and_is_named_by_the_health_check(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path) as running:
        with unreadable_segments(running, range(1), tmp_path / "strace"):
            post_and_wait_until_sealed(running, trace_body(1, time.time_ns()))
            post_and_wait_for_fresh_spans(running)
            checks = running.checks()
            is_stored_despite_the_fault = is_readable(running, 1)
        wait_until_readable(running, 1)
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
