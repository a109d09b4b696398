"""Engines as shards of a cluster: each fails for itself, and every span is stored once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from receiver import transcode
from tests.faults.variant import IS_LONG, note
from tests.support.engine_cluster import LATE_S, EngineCluster
from tests.support.fake_clickhouse import DAY_S, NOW_S
from tests.support.redelivery import delivery_of, sealed
from tests.support.writer_harness import WriterHarness

SHARDS = 3
FAULTS_MIN = 1_000 if IS_LONG else 48
WAITING_MAX = 4
WAIT_S = 0.01
"""Real duration of a wait, in which a statement whose connection was closed goes on."""


class ShardsHarness(WriterHarness):
    """A writer whose shards are engines. A killed engine is started again while the writer waits."""

    store: EngineCluster  # type: ignore[assignment]  # the writer uses the methods of `Store` only

    def __init__(self, directory: Path, cluster: EngineCluster) -> None:
        super().__init__(directory, cluster, core=transcode, sleeps_max=10**9)  # type: ignore[arg-type]  # as above

    def add_segment(self, random: Random) -> list[tuple[str, str]]:
        """Add a segment to the journal. Returns trace and span id of its spans."""
        seq = len(self.files) + 1
        spans = [
            {
                "traceId": f"{seq:016x}{trace + 1:016x}",
                "spanId": f"{span + 1:016x}",
                "startTimeUnixNano": str((NOW_S - random.randint(0, 2) * DAY_S) * 10**9),
            }
            for trace in range(random.randint(1, 6))
            for span in range(random.randint(1, 4))
        ]
        self.file(sealed(seq, [delivery_of(spans)]), seq=seq)
        return [(span["traceId"], span["spanId"]) for span in spans]

    def sleep(self, delay_s: float) -> None:
        super().sleep(delay_s)
        time.sleep(WAIT_S)
        self.store.restart(probability=0.3)


@pytest.fixture
def cluster(quick_dir: Path) -> Iterator[EngineCluster]:
    with closing(EngineCluster(quick_dir, Random(7), SHARDS)) as engines:
        yield engines


@pytest.mark.fault(
    "engines that are shards of a cluster are killed, stopped, hang, or refuse INSERTs, each for itself"
)
@pytest.mark.timeout(3_600)
def test_shards_that_are_killed_hang_or_refuse_have_every_span_once(
    quick_dir: Path, cluster: EngineCluster
) -> None:
    harness, random = ShardsHarness(quick_dir, cluster), cluster.random
    cluster.is_faulty = True
    given: list[tuple[str, str]] = []
    writer = harness.writer
    while len(cluster.faults) < FAULTS_MIN:
        if sum(file.path.exists() for file in harness.files) < WAITING_MAX and random.random() < 0.6:
            given += harness.add_segment(random)
        # Another writer: as after a kill, every segment may have been sent.
        if random.random() < 0.1:
            writer = harness.writer
        harness.between_turns_s += 5.0 if writer.drain() else 60.0
    cluster.is_faulty = False
    cluster.restart()
    time.sleep(LATE_S)

    harness.drain_all()

    note(f"{len(harness.files)} segments, {len(given)} spans, faults: {dict(Counter(cluster.faults))}")
    assert not any(file.path.exists() for file in harness.files)
    assert sorted(cluster.rows("SELECT TraceId, SpanId FROM otel_traces")) == sorted(given)
    traces = cluster.rows("SELECT DISTINCT TraceId FROM otel_traces_trace_id_ts")
    assert sorted(trace for (trace,) in traces) == sorted({trace for trace, _ in given})
    assert harness.dead == []
