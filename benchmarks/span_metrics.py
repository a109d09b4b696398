"""Cost of the metrics of spans: CPU time to count a million spans, and size and time of a scrape.

    python -m benchmarks.span_metrics [--spans 1000000] [--series 2000]

The spans are segments of an embedded store in a temporary directory. The first part is all that
`api.span_metrics` adds to storing spans: it sums up the segments in batches and writes the sums after each.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from pathlib import Path

from receiver.console.queries.span_metrics.exposition import Exposition, rendered
from receiver.console.queries.span_metrics.families import families
from receiver.console.queries.span_metrics.follower import Follower
from receiver.engine import schema
from receiver.engine.embedded import EmbeddedStore
from receiver.ledger.recorded import RecordedSegments
from receiver.model import SegmentId
from receiver.reports import RecordedSegment
from receiver.settings import GIB, Settings
from receiver.transcode import SCHEMAS

SEGMENT_ROWS = 50_000
_INSERT = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ProjectId,
    DeploymentId, Duration, StatusCode, ReceivedAt, SegmentEpoch, SegmentSeq, SpanAttributes)
SELECT now64(9), lower(hex(sipHash128(intDiv(number, 20), {seq:UInt64}))), lower(hex(number)), 'aa',
    concat('GET /', toString(number % {operations:UInt64})), if(number % 4 = 0, 'Server', 'Internal'),
    concat('service ', toString(rand(3) % 10)), 'prj', concat('dpl_', toString(rand(4) % 2)),
    toUInt64(exp2(10 + rand() % 25)), if(rand(1) % 20 = 0, 'Error', 'Unset'), now64(3), 1, {seq:UInt64},
    map('http.route', '/items/[id]', 'user.id', toString(rand(2)))
FROM numbers({rows:UInt64})
"""


def stored_segments(store: EmbeddedStore, spans: int, series: int) -> list[RecordedSegment]:
    """Store segments, of whose spans every fourth is a request."""
    now_ms = time.time_ns() // 10**6
    segments = [
        RecordedSegment(SegmentId(1, seq), (now_ms - 60_000, now_ms + 3_600_000), None, SEGMENT_ROWS)
        for seq in range(spans // SEGMENT_ROWS)
    ]
    for segment in segments:
        store.rows(_INSERT, {"seq": segment.id.seq, "operations": series // 5, "rows": segment.rows})
    return segments


def count(store: EmbeddedStore, directory: Path, segments: list[RecordedSegment], series: int) -> Follower:
    """Count segments as the receiver does at 10,000 spans a second: one of them for each statement."""
    # The limit of the receiver reserves a quarter for the series `(other)`.
    follower = Follower(store, directory / "series.msgpack", series * 2)
    follower.open()
    log = RecordedSegments(directory / "segments.log")
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    for segment in segments:
        log.add(segment)
        follower.step(log)
    spans = sum(segment.rows for segment in segments)
    per_million = 1e6 / spans
    cpu_s = (time.process_time() - begun_cpu_s) * per_million
    wall_s = (time.perf_counter() - begun_s) * per_million
    _say(f"count a million spans: {cpu_s:.2f} s of CPU, {wall_s:.2f} s, in segments of {SEGMENT_ROWS} spans")
    _say(f"file: {(directory / 'series.msgpack').stat().st_size / 1e3:.0f} kB")
    log.close()
    return follower


def scrape(follower: Follower) -> None:
    """Print size and time of a scrape in each format."""
    counts = follower.counts
    if counts is None:
        raise RuntimeError("the follower is not open")
    _say(f"series: {len(counts.series)}, missing spans: {counts.missing}")
    for form in Exposition:
        begun_s = time.process_time()
        body = rendered(families(counts, 2_000, 0), form)
        cpu_ms = (time.process_time() - begun_s) * 1e3
        packed = len(gzip.compress(body, 6))
        sizes = f"{len(body) / 1e6:.2f} MB, gzip {packed / 1e6:.2f} MB"
        _say(f"scrape {form.name}: {sizes}, {cpu_ms:.0f} ms of CPU")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        store = EmbeddedStore(
            path / "store", database="otel", memory_bytes_max=4 * GIB, disk_free_min=lambda: 1
        )
        schema.apply(store, SCHEMAS, *schema.wanted(Settings()))
        segments = stored_segments(store, options.spans, options.series)
        scrape(count(store, path, segments, options.series))
        store.close()


if __name__ == "__main__":
    main()
