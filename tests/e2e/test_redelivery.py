"""The same body sent repeatedly while processes are killed: answered 200 each time and stored once.

A drain without deduplication stores every copy.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import SPANS_PER_REQUEST, pid_of, trace_body
from tests.faults.load import deliver

COPIES = 10
GZIP = "content-encoding: gzip\r\n"
CONFIG = """
intakes = 2
[[drain]]
name = "default"
[[drain]]
name = "every copy"
path = "/every-copy"
dedupe = false
"""
KILLED_BEFORE_COPY = {2: "intake", 3: "store", 5: "intake", 7: "store"}


@pytest.mark.fault("the same delivery ten times, compressed differently, while processes are killed")
@pytest.mark.timeout(240)
def test_body_sent_ten_times_is_stored_once_while_processes_are_killed(tmp_path: Path) -> None:
    body, other, again = trace_body(1), trace_body(2), trace_body(3)
    with ReceiverProcess(tmp_path, config=CONFIG) as running:
        for copy in range(COPIES):
            if copy in KILLED_BEFORE_COPY:
                running.kill(pid_of(running, KILLED_BEFORE_COPY[copy]))
            if copy == 8:
                running.stop()
                running.start()
            if copy in {1, 4}:
                # The copies before are not in the journal with the next.
                running.wait_until_stored()
            if copy % 2:
                compressed = gzip.compress(body, mtime=copy, compresslevel=1 + copy % 9)
                deliver(running, compressed, headers=GZIP)
            else:
                deliver(running, body)
        deliver(running, other)
        for _ in range(3):
            assert running.post(again, path="/every-copy").status == 200
        running.wait_until_ready()
        rows = running.spans_once_stored(5 * SPANS_PER_REQUEST)
        metrics = running.metrics()

    assert Counter(row["TraceId"] for row in rows) == {
        f"{1:032x}": SPANS_PER_REQUEST,
        f"{2:032x}": SPANS_PER_REQUEST,
        f"{3:032x}": 3 * SPANS_PER_REQUEST,
    }
    assert 'trace_drain_deliveries_duplicate_total{drain="default"}' in metrics
