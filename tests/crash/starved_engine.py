"""Child process whose disk refuses writes beyond a few bytes at chosen times, with the embedded engine.

    python -m tests.crash.starved_engine DIRECTORY insert | refill | merge

Prints one JSON object: what happened, and how many rows the store has at the end.
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
MERGED_FILE_BYTES_MAX = 2_000
"""Below the largest file of a merged part of 4,000 small rows."""


@contextmanager
def file_size_limited(bytes_max: int = FILE_BYTES_MAX) -> Iterator[None]:
    """Limit the size of every file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fail_insert(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Insert while the disk refuses writes, and again while it accepts them."""
    segment = maker.make(*[0] * 3_000)
    try:
        with file_size_limited():
            store.insert(segment.path, token="#0", query_id="trace-drain-starved")
    except StoreTrouble as error:
        code = error.code
    before = len(store.counts([segment.location]))
    store.insert(segment.path, token="#1", query_id="trace-drain-retried")
    return {"code": code, "before": before, "rows": store.rows("SELECT count() FROM otel_traces")[0][0]}


def fail_refill(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Fill the companion table while the disk refuses writes, inspect the store, and fill it again."""
    segment = maker.make(*[0] * 3_000)
    store.insert(segment.path, token="#0", query_id="trace-drain-refilled")
    store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    code = None
    try:
        with file_size_limited(FILE_BYTES_MAX // 20):
            store.refill_companion(segment.location, list(segment.days))
    except StoreTrouble as error:
        code = error.code
    store.inspect()
    store.refill_companion(segment.location, list(segment.days))
    counted = store.rows("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts")[0][0]
    return {"code": code, "traces": counted}


def fail_merge(store: EmbeddedStore, maker: SegmentMaker) -> dict[str, object]:
    """Merge while the disk refuses writes; then open the engine again as the next process does."""
    for number in range(2):
        store.insert(maker.make(*[0] * 2_000).path, token=f"#{number}", query_id="trace-drain-merged")
    with file_size_limited(MERGED_FILE_BYTES_MAX):
        store.command("OPTIMIZE TABLE otel_traces FINAL")
    try:
        store.inspect()
    except OperatorError as error:
        message = str(error)
    store.close()
    reopened = engines.bare(store_dir, "starved")
    count = reopened.rows("SELECT uniqExact(SpanId, SegmentSeq) FROM otel_traces")[0][0]
    reopened.inspect()
    reopened.close()
    return {"error": message, "rows": count}


if __name__ == "__main__":
    directory, what = Path(sys.argv[1]), sys.argv[2]
    store_dir = directory / "store"
    opened = engines.bare(store_dir, "starved")
    schema.apply(opened, schema_sources(), 30)
    scenario = {"insert": fail_insert, "refill": fail_refill, "merge": fail_merge}[what]
    print(json.dumps(scenario(opened, SegmentMaker(directory))))  # noqa: T201 - the parent process reads it
