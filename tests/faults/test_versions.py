"""Upgrade and downgrade while the journal holds segments, and segments older than the retention."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from receiver import transcode
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import MIB, Settings
from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body
from tests.faults.versions import as_version, segments
from tests.faults.wire import post
from tests.support.segments import DIGEST_KEY
from tests.torture.receiver_state import processes

V1_SEGMENT = Path(__file__).with_name("segment_v1.native.lz4")
"""Written by version 1 of the record layout; every later version must read it."""
V1_SEGMENT_ID = SegmentId(0xA1B2_C3D4_0000_0001, 3)
V1_SPANS = {f"{trace:032x}": 3 for trace in range(1, 11)}
TRACES = 40
DAY_S = 86_400
SMALL_SEGMENTS = "[journal]\nsegment_bytes_max = 8192\n"


def stored_spans(running: ReceiverProcess) -> dict[str, int]:
    return dict(Counter(row["TraceId"] for row in running.spans()))


def place_segment(data: Path, segment: SegmentId, kind: str, content: bytes) -> None:
    """Write a segment into the journal of a receiver that is stopped."""
    epoch_directory = data / "journal" / f"{segment.epoch:016x}"
    epoch_directory.mkdir(parents=True, exist_ok=True)
    (epoch_directory / f"{segment.seq:010d}.{kind}").write_bytes(content)


def fill_journal(data: Path) -> dict[Path, bytes]:
    """Deliver while the store process is stopped, then kill all: sealed and open segments remain."""
    with ReceiverProcess(data, config=SMALL_SEGMENTS) as running:
        os.kill(pid_of(running, "store"), signal.SIGSTOP)
        for trace in range(1, TRACES + 1):
            assert post(running.address, trace_body(trace)) == 200
        running.kill(pid_of(running, "intake"))
        left = processes(running)
        running.kill()
        for pid, role in left.items():
            if role != "supervisor":
                with suppress(ProcessLookupError):
                    running.kill(pid)
    return segments(data / "journal")


@pytest.mark.fault(
    "downgrade while the journal holds segments, and upgrade again: segments are kept unchanged"
)
@pytest.mark.timeout(240)
def test_journal_of_a_newer_version_is_kept_until_that_version_returns(tmp_path: Path) -> None:
    written = fill_journal(tmp_path)
    newer = {path: as_version(content, 2) for path, content in written.items()}
    for path, content in newer.items():
        path.write_bytes(content)
    with ReceiverProcess(tmp_path) as running:
        running.wait_for_check("newer version")
        assert post(running.address, trace_body(TRACES + 1)) == 200
        running.wait_until_readable(TRACES + 1)
        assert len(stored_spans(running)) == 1
    unchanged = segments(tmp_path / "journal")
    dead = list((tmp_path / "dead").glob("*"))
    for path, content in newer.items():
        path.write_bytes(as_version(content, 1))
    with ReceiverProcess(tmp_path) as running:
        running.wait_until_stored()
        spans_by_trace = stored_spans(running)

    assert {path.suffix for path in written} == {".lz4", ".open"}
    assert {path: as_version(content, 1) for path, content in newer.items()} == written
    assert unchanged == newer
    assert dead == []
    assert spans_by_trace == {f"{trace:032x}": 3 for trace in range(1, TRACES + 2)}


@pytest.mark.fault("upgrade while the journal holds segments: a segment of an older version is stored")
@pytest.mark.timeout(120)
def test_segment_of_every_older_version_is_stored(tmp_path: Path) -> None:
    place_segment(tmp_path, V1_SEGMENT_ID, "native.lz4", V1_SEGMENT.read_bytes())
    with ReceiverProcess(tmp_path, config="[store]\nretention_days = 0\n") as running:
        running.wait_until_stored()
        answers = [running.get(f"/api/v1/traces/{trace}") for trace in V1_SPANS]

    assert {answer.status for answer in answers} == {200}
    assert sum(answer.body.count(b'"SpanId"') for answer in answers) == sum(V1_SPANS.values())
    assert list((tmp_path / "dead").glob("*")) == []


@pytest.mark.fault("the store is unavailable for longer than its retention")
@pytest.mark.timeout(120)
def test_rows_that_expired_while_the_store_was_unavailable_are_deleted_without_an_alarm(
    tmp_path: Path,
) -> None:
    then_ns = time.time_ns() - 40 * DAY_S * 10**9
    for trace, kind in enumerate(("open", "native.lz4"), 1):
        segment = SegmentId(0xABCD + trace, 0)
        old = Delivery("default", trace_body(trace, then_ns), ContentKind.JSON, (), then_ns, False, MIB)  # noqa: FBT003
        made = transcode.commit(transcode.policy(Settings()), [old], segment, DIGEST_KEY)
        assert made.rows == 3
        footer = b"" if kind == "open" else transcode.footer(made.record)
        place_segment(tmp_path, segment, kind, made.record + footer)
    with ReceiverProcess(tmp_path) as running:
        assert post(running.address, trace_body(3)) == 200
        running.wait_until_stored()
        spans_by_trace, metrics = stored_spans(running), running.metrics()

    assert spans_by_trace.keys() == {f"{3:032x}"}
    assert "trace_drain_store_alarms_total 0.0" in metrics
    assert list((tmp_path / "dead").glob("*")) == []
