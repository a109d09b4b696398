"""A process whose disk refuses every write past a few bytes, at the moment it is told: what T2 is about.

    python -m tests.crash.starved_engine DIRECTORY insert | merge

Prints one JSON object: what happened, and how many rows are there at the end.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.errors import OperatorError, StoreTrouble
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import SegmentMaker

FILE_BYTES_MAX = 20_000


@contextmanager
def starved(bytes_max: int = FILE_BYTES_MAX) -> Iterator[None]:
    """No file grows beyond a few bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def of_an_insert(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Insert while the disk refuses, and then the same token while it does not."""
    segment = maker.make(*[0] * 3_000)
    try:
        with starved():
            store.insert(segment.path, token="#0", query_id="trace-drain-starved")
    except StoreTrouble as trouble:
        told = trouble.code
    before = len(store.counts([segment.held]))
    store.insert(segment.path, token="#1", query_id="trace-drain-fed")
    return {"code": told, "before": before, "rows": store.rows("SELECT count() FROM otel_traces")[0][0]}


def of_a_refill(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Fill the companion while the disk refuses, inspect, and fill it while it does not."""
    segment = maker.make(*[0] * 3_000)
    store.insert(segment.path, token="#0", query_id="trace-drain-refilled")
    store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    told = None
    try:
        with starved(FILE_BYTES_MAX // 20):
            store.refill_companion(segment.held, list(segment.days))
    except StoreTrouble as trouble:
        told = trouble.code
    store.inspect()
    store.refill_companion(segment.held, list(segment.days))
    counted = store.rows("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts")[0][0]
    return {"code": told, "traces": counted}


def of_a_merge(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Merge while the disk refuses; open the engine anew, as the next process does."""
    for number in range(2):
        store.insert(maker.make(*[0] * 2_000).path, token=f"#{number}", query_id="trace-drain-merged")
    with starved():
        store.command("OPTIMIZE TABLE otel_traces FINAL")
    try:
        store.inspect()
    except OperatorError as damage:
        told = str(damage)
    store.close()
    again = engines.bare(store_dir, "starved")
    count = again.rows("SELECT uniqExact(SpanId, SegmentSeq) FROM otel_traces")[0][0]
    again.inspect()
    again.close()
    return {"told": told, "rows": count}


if __name__ == "__main__":
    directory, what = Path(sys.argv[1]), sys.argv[2]
    store_dir = directory / "store"
    opened = engines.bare(store_dir, "starved")
    schema.apply(opened, schema_sources(), 30)
    act = {"insert": of_an_insert, "refill": of_a_refill, "merge": of_a_merge}[what]
    print(json.dumps(act(opened, SegmentMaker(directory))))  # noqa: T201 - the answer
