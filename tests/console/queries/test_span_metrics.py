"""Metrics of spans: their sums equal naive counts over the stored spans, whatever is killed."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from receiver.console.queries.span_metrics import follower as follower_module
from receiver.console.queries.span_metrics.follower import Follower
from receiver.console.queries.span_metrics.series import (
    IDLE_S,
    OTHER,
    ZERO,
    SeriesKey,
    SpanCounts,
    SpanSeries,
)
from receiver.console.queries.span_metrics.statement import CHARS_MAX, GROUPS_MAX, requests_of
from receiver.engine.store import Store
from receiver.ledger import recorded
from receiver.ledger.recorded import RecordedSegments
from receiver.model import SegmentId
from receiver.reports import RecordedSegment
from tests.support import engines
from tests.support.faulty_disk import WRITE_CALLS, faults_at_each_call, process_with
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.redelivery import Killed
from tests.support.rollups import is_request, random_spans

SEGMENTS = 12
PARTS_EPOCH = 99
RECEIVED_MS = (0, 2 * NOW_S * 1_000)


@pytest.fixture(scope="module")
def spans() -> Sequence[Span]:
    """Return spans of some segments; the rows of one that was split have another epoch, too."""
    rng = random.Random(5)
    spans = random_spans(rng, 400)
    for number, span in enumerate(spans):
        epoch = PARTS_EPOCH if number % SEGMENTS == 3 and number % 2 else 1
        span |= {"SegmentEpoch": epoch, "SegmentSeq": number % SEGMENTS}
        span["SpanName"] = rng.choice(["GET /", "été\n", "x" * 2 * CHARS_MAX])
    return spans


def segments(spans: Sequence[Span]) -> list[RecordedSegment]:
    rows = Counter(span["SegmentSeq"] for span in spans)
    return [
        RecordedSegment(SegmentId(1, seq), RECEIVED_MS, PARTS_EPOCH if seq == 3 else None, rows[seq])
        for seq in range(SEGMENTS)
    ]


def bucket_of(duration: int) -> int:
    return math.ceil(4 * math.log2(duration / 1e9)) if duration else ZERO


def naive(spans: Sequence[Span]) -> dict[SeriesKey, dict[str, Any]]:
    """Compute the sums in plain Python."""
    groups = defaultdict[SeriesKey, list[Span]](list)
    for span in filter(is_request, spans):
        labels = (span[name][:CHARS_MAX] for name in ("ProjectId", "DeploymentId", "ServiceName", "SpanName"))
        groups[SeriesKey(*labels)].append(span)
    return {key: _sums(group) for key, group in groups.items()}


def _sums(group: Sequence[Span]) -> dict[str, Any]:
    weights = [1.0 if span["SampleWeight"] is None else span["SampleWeight"] for span in group]
    is_failed = [span["StatusCode"] == "Error" for span in group]
    return {
        "requests": len(group),
        "errors": sum(is_failed),
        "estimated_requests": sum(weights),
        "estimated_errors": sum(weight for weight, failed in zip(weights, is_failed, strict=True) if failed),
        "seconds": pytest.approx(sum(span["Duration"] for span in group) / 1e9),
        "buckets": dict(Counter(bucket_of(span["Duration"]) for span in group)),
    }


def sums_of(counts: SpanCounts | None) -> dict[SeriesKey, dict[str, Any]]:
    assert counts is not None
    fields = ("requests", "errors", "estimated_requests", "estimated_errors", "seconds", "buckets")
    return {key: {name: getattr(each, name) for name in fields} for key, each in counts.series.items()}


def total(counts: SpanCounts) -> int:
    return sum(each.requests for each in counts.series.values()) + sum(counts.retired.values())


def follow(store: Store, directory: Path, log: RecordedSegments, now_s: float = NOW_S * 3) -> Follower:
    """Start a follower and count every segment of the log."""
    follower = Follower(store, directory / "series.msgpack", 2_000, lambda: now_s)
    follower.open()
    while follower.step(log):
        pass
    return follower


def test_sums_equal_the_stored_spans_after_any_batches_and_restarts(
    store: Store, spans: Sequence[Span], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SEGMENTS_MAX", 3)
    log = RecordedSegments(tmp_path / "segments.log")
    for segment in segments(spans):
        log.add(segment)
        log.add(segment)
        if segment.id.seq % 5 == 4:
            follow(store, tmp_path, log)
            log = RecordedSegments(tmp_path / "segments.log")

    counts = follow(store, tmp_path, log).counts

    assert sums_of(counts) == naive(spans)
    assert counts is not None
    assert counts.missing == 0


def test_exemplars_are_the_slowest_requests_and_the_slowest_failed_ones(
    store: Store, spans: Sequence[Span]
) -> None:
    groups = dict(requests_of(store, segments(spans)).groups)

    for key, series in groups.items():
        labels = dict(zip(("ProjectId", "DeploymentId", "ServiceName"), key, strict=False))
        of_key = [
            span
            for span in spans
            if is_request(span)
            and span["SpanName"][:CHARS_MAX] == key.operation
            and labels.items() <= span.items()
        ]
        failed = [span for span in of_key if span["StatusCode"] == "Error"]
        for found, among in ((series.slow, of_key), (series.failed, failed)):
            slowest = max((span["Duration"] for span in among), default=None)
            assert (found and found.seconds) == (None if slowest is None else pytest.approx(slowest / 1e9))
            assert found is None or found.trace_id in {
                span["TraceId"] for span in among if span["Duration"] == slowest
            }


def test_names_that_differ_in_each_span_stay_within_the_limits(store: Store, spans: Sequence[Span]) -> None:
    """One statement returns few groups, and no span is lost."""
    extra = GROUPS_MAX + 500
    store.rows(
        "INSERT INTO otel_traces (Timestamp, SpanName, ServiceName, ProjectId, ReceivedAt, SegmentEpoch) "
        "SELECT {now_s:UInt32}, toString(number), toString(number), 'prj_many', {now_s:UInt32}, 77 "
        "FROM numbers({extra:UInt32})",
        {"now_s": NOW_S, "extra": extra},
    )
    counts = SpanCounts(0.0)

    groups = requests_of(store, [RecordedSegment(SegmentId(77, 0), RECEIVED_MS, None, extra)]).groups
    counts.add(groups, 100, NOW_S)

    assert len(groups) == GROUPS_MAX + 1
    assert len(counts.series) <= 100
    assert total(counts) == extra
    assert counts.folded["prj_many"] == sum(
        each.requests for key, each in counts.series.items() if OTHER in key
    )
    assert {key.project for key in counts.series} == {"prj_many"}
    if store.embedded:
        engines.delete_rows(store)
        insert(store, spans)


def test_rows_that_are_not_visible_yet_are_waited_for_and_then_counted_as_missing(
    store: Store, spans: Sequence[Span], tmp_path: Path
) -> None:
    log = RecordedSegments(tmp_path / "segments.log")
    log.add(segments(spans)[0]._replace(rows=100_000))

    early = follow(store, tmp_path, log, now_s=RECEIVED_MS[1] / 1e3 + 1)
    assert early.counts is not None
    assert (early.counts.series, early.waiting) == ({}, 1)
    late = follow(store, tmp_path, log, now_s=RECEIVED_MS[1] / 1e3 + 61)

    assert late.counts is not None
    assert late.waiting == 0
    assert late.counts.missing == 100_000 - sum(span["SegmentSeq"] == 0 for span in spans)


class OneByOne:
    """Stand-in for the statement: each row is a request of an operation named like its segment."""

    def __call__(self, _store: object, batch: Sequence[RecordedSegment]) -> Any:  # noqa: ANN401 - Requests
        groups = [
            (SeriesKey("p", "", "s", str(each.id)), SpanSeries(requests=each.rows, buckets={0: each.rows}))
            for each in batch
        ]
        return type("Found", (), {"groups": groups, "rows": sum(each.rows for each in batch)})


def life(directory: Path, present: set[int]) -> Follower:
    """Record, count and settle segments as writer and follower do. `present`: files in the journal."""
    log = RecordedSegments(directory / "segments.log")
    follower = Follower(None, directory / "series.msgpack", 2_000, lambda: float(NOW_S))  # type: ignore[arg-type]
    follower.open()
    log.retain({SegmentId(1, seq) for seq in present})
    for seq in sorted(present):
        segment = RecordedSegment(SegmentId(1, seq), (0, 0), None, seq + 1)
        log.add(segment)
        follower.step(log)
        present.discard(seq)
        log.settle(segment.id)
        follower.step(log)
    return follower


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "error", [Killed, lambda: OSError(5, "Input/output error")], ids=["kill", "disk error"]
)
def test_kill_at_any_step_neither_loses_nor_repeats_a_segment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Any,  # noqa: ANN401 - makes an exception
) -> None:
    monkeypatch.setattr(recorded, "DONE_MAX", 2)
    monkeypatch.setattr(follower_module, "requests_of", OneByOne())
    tried = 0
    for fault in faults_at_each_call(WRITE_CALLS, error, is_permanent=False):
        directory, present = tmp_path / str(fault.at), set(range(6))
        with process_with(fault):
            try:
                life(directory, present)
            except (Killed, OSError):
                tried += 1
        # The segment that was in progress is recorded again.
        counts = life(directory, present).counts

        assert counts is not None
        assert {key.operation: each.requests for key, each in counts.series.items()} == {
            str(SegmentId(1, seq)): seq + 1 for seq in range(6)
        }, f"{fault.at}"
        assert len(counts.counted) < 6
    assert tried > 40


def test_deleted_files_begin_again_at_0_and_damaged_ones_do_not_stop_the_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "requests_of", OneByOne())
    life(tmp_path, {0, 1})
    for name in ("series.msgpack", "segments.log"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    counts = life(tmp_path, {2}).counts

    assert counts is not None
    assert total(counts) >= 3


def add(counts: SpanCounts, now_s: float, *names: str, series_max: int = 100) -> None:
    groups = [(SeriesKey("p", "d", *name.split("/")), SpanSeries(requests=1)) for name in names]
    counts.add(groups, series_max, now_s)


def test_requests_above_the_limit_are_counted_as_other_operations_then_services() -> None:
    counts = SpanCounts(0.0)

    add(counts, 0, *(f"s/{number}" for number in range(500)), *(f"s{number}/o" for number in range(500)))

    assert len(counts.series) <= 100
    assert total(counts) == 1_000
    assert counts.series[SeriesKey("p", "d", "s", OTHER)].requests == 500 - 75
    assert counts.series[SeriesKey("p", "d", OTHER, OTHER)].requests > 450
    assert counts.folded == {"p": 1_000 - 75}


def test_idle_series_make_room_for_new_ones_and_stay_counted() -> None:
    counts = SpanCounts(0.0)
    add(counts, 0, *(f"s/old {number}" for number in range(75)))
    add(counts, 1_000, "s/old 7")

    add(counts, IDLE_S, "s/new")

    assert SeriesKey("p", "d", "s", "new") in counts.series
    assert SeriesKey("p", "d", "s", "old 7") in counts.series
    assert len(counts.series) == 75 - 100 // 8 + 1
    assert (total(counts), counts.retired) == (77, {"p": 100 // 8})
    assert not counts.folded
