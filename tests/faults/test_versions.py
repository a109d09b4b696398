"""Upgrade and downgrade with a full journal, and a journal that is older than what the store keeps."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from receiver import transcode
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import MIB, Settings
from tests.e2e.running import Running, reply_of
from tests.e2e.test_kill import pid_of
from tests.faults.bodies import trace_body
from tests.faults.versions import as_version, segments
from tests.faults.wire import post
from tests.segments import DIGEST_KEY
from tests.torture.site import processes

KEPT = Path(__file__).with_name("segment_v1.native.lz4")
"""Written by version 1 of the record layout, and to be read by every version after it."""
KEPT_ID = SegmentId(0xA1B2_C3D4_0000_0001, 3)
KEPT_SPANS = {f"{trace:032x}": 3 for trace in range(1, 11)}
TRACES = 40
DAY_S = 86_400
PATIENCE_S = 60.0
SMALL_SEGMENTS = "[journal]\nsegment_bytes_max = 8192\n"


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def stored(running: Running) -> dict[str, int]:
    return dict(Counter(row["TraceId"] for row in running.spans()))


def readiness(running: Running) -> str:
    base = str(running.state()["urls"]["admin"])
    return reply_of(urllib.request.Request(f"{base}/readyz?verbose")).body.decode()


def fill_journal(data: Path) -> dict[Path, bytes]:
    """Deliver while the store stands still, then end it all: sealed segments and an open one are left."""
    with Running(data, config=SMALL_SEGMENTS) as running:
        os.kill(pid_of(running, "store"), signal.SIGSTOP)
        for trace in range(1, TRACES + 1):
            assert post(running.address, trace_body(trace, time.time_ns())) == 200
        running.kill(pid_of(running, "intake"))
        left = processes(running)
        running.kill()
        for pid, role in left.items():
            if role != "supervisor":
                with suppress(ProcessLookupError):
                    running.kill(pid)
    return segments(data / "journal")


@pytest.mark.fault(
    "downgrade with a full journal, and back: segments of a newer version are held, not damaged"
)
@pytest.mark.timeout(240)
def test_a_journal_of_a_newer_version_is_held_until_that_version_is_back(tmp_path: Path) -> None:
    written = fill_journal(tmp_path)
    newer = {path: as_version(content, 2) for path, content in written.items()}
    for path, content in newer.items():
        path.write_bytes(content)
    with Running(tmp_path) as running:
        until(lambda: "newer version" in readiness(running), "readyz warns")
        assert post(running.address, trace_body(TRACES + 1, time.time_ns())) == 200
        until(lambda: len(stored(running)) == 1, "what comes now is stored")
    held = segments(tmp_path / "journal")
    dead = list((tmp_path / "dead").glob("*"))
    for path, content in newer.items():
        path.write_bytes(as_version(content, 1))
    with Running(tmp_path) as running:
        until(lambda: len(stored(running)) == TRACES + 1, "the version that wrote it stores it")
        found = stored(running)

    assert {path.suffix for path in written} == {".lz4", ".open"}
    assert {path: as_version(content, 1) for path, content in newer.items()} == written
    assert held == newer
    assert dead == []
    assert set(found.values()) == {3}


@pytest.mark.fault("upgrade with a full journal: a segment that an older version left is stored")
@pytest.mark.timeout(120)
def test_a_segment_of_every_version_so_far_is_stored(tmp_path: Path) -> None:
    start = tmp_path / "journal" / f"{KEPT_ID.epoch:016x}"
    start.mkdir(parents=True)
    (start / f"{KEPT_ID.seq:010d}.native.lz4").write_bytes(KEPT.read_bytes())
    with Running(tmp_path, config="[store]\nretention_days = 0\n") as running:
        until(lambda: not segments(tmp_path / "journal"), "the journal is empty")
        answers = [
            reply_of(urllib.request.Request(f"{running.state()['urls']['api']}/api/v1/traces/{trace}"))
            for trace in KEPT_SPANS
        ]

    assert {answer.status for answer in answers} == {200}
    assert sum(answer.body.count(b'"SpanId"') for answer in answers) == sum(KEPT_SPANS.values())
    assert list((tmp_path / "dead").glob("*")) == []


@pytest.mark.fault("the store comes back after longer than its retention")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["open", "native.lz4"])
def test_what_expired_while_the_store_was_away_is_let_go_without_an_alarm(tmp_path: Path, kind: str) -> None:
    then_ns = time.time_ns() - 40 * DAY_S * 10**9
    segment = SegmentId(0xABCD, 0)
    old = Delivery("default", trace_body(1, then_ns), ContentKind.JSON, (), then_ns, False, MIB)  # noqa: FBT003
    made = transcode.commit(transcode.policy(Settings()), [old], segment, DIGEST_KEY)
    start = tmp_path / "journal" / f"{segment.epoch:016x}"
    start.mkdir(parents=True)
    sealed = made.record + (transcode.footer(made.record) if kind != "open" else b"")
    (start / f"{segment.seq:010d}.{kind}").write_bytes(sealed)
    with Running(tmp_path) as running:
        assert post(running.address, trace_body(2, time.time_ns())) == 200
        until(lambda: not segments(tmp_path / "journal"), "the journal is empty")
        found, metrics = stored(running), running.metrics()

    assert made.rows == 3
    assert found.keys() == {f"{2:032x}"}
    assert "trace_drain_store_alarms_total 0.0" in metrics
    assert list((tmp_path / "dead").glob("*")) == []
