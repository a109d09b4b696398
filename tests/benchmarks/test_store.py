"""Tests of the storage benchmarks: equal content of both tables, the page, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from benchmarks.store.__main__ import seconds_of
from benchmarks.store.page import page
from benchmarks.store.queries import choose_search_values, queries
from benchmarks.store.results import Moment, Results, Sustained, Table
from benchmarks.store.segments import BODY_SPANS, SegmentMaker, days_before, spread_over
from benchmarks.store.sustain import segment_s, sustain, verdict_on
from benchmarks.store.tables import ComparedTable
from receiver.settings import Journal

SPANS = 40 * BODY_SPANS


@pytest.fixture
def tables(engine_dir: Path) -> Iterator[list[ComparedTable]]:
    both = [ComparedTable("ours", engine_dir), ComparedTable("otel", engine_dir)]
    yield both
    for table in both:
        table.drop()
        table.store.close()


def test_both_tables_hold_the_same_spans_and_return_the_same_results(
    tables: list[ComparedTable], tmp_path: Path
) -> None:
    began, ended = days_before(datetime.now(UTC))
    segment = tmp_path / "1.native.lz4"
    SegmentMaker(SPANS).segment(segment, spread_over(SPANS, began, ended))

    for table in tables:
        table.create()
        table.insert(segment)
        table.merge()
    search_values = choose_search_values(tables[0].store, began, ended)
    ours, otel = (
        [table.store.rows(query.sql) for query in queries(table.name, search_values)] for table in tables
    )

    assert [table.rows() for table in tables] == [SPANS, SPANS]
    assert all(table.disk_bytes() > 0 for table in tables)
    assert [sorted(row[0] for row in rows) for rows in ours] == [
        sorted(row[0] for row in rows) for rows in otel
    ]
    assert all(len(rows) <= 20 for rows in ours)
    assert sum(bool(rows) for rows in ours) >= 8


def test_traces_cross_three_services_of_one_project(tables: list[ComparedTable], tmp_path: Path) -> None:
    ours, segment = tables[0], tmp_path / "1.native.lz4"
    SegmentMaker(SPANS).segment(segment, spread_over(SPANS, *days_before(datetime.now(UTC))))
    for table in tables:
        table.create()
    ours.insert(segment)

    traces = ours.store.rows(
        "SELECT uniqExact(ProjectId), uniqExact(ServiceName), count() AS spans, "
        "countIf(ParentSpanId = ''), countIf(ParentSpanId IN (SELECT SpanId FROM otel_traces)) "
        "FROM otel_traces GROUP BY TraceId HAVING spans = 10"
    )

    assert len(traces) > SPANS // 20
    assert set(traces) == {(1, 3, 10, 1, 9)}


def test_page_shows_the_lowest_value_with_its_spread() -> None:
    ours = Table(
        rows=2_000_000,
        disk_bytes=140_000_000,
        insert_cpu_s=[3.0, 2.0, 8.0],
        insert_rows=[1_000_000] * 3,
        merge_cpu_s=4.0,
        query_cpu_ms={"trace by id": [12.0, 10.0, 40.0]},
    )
    otel = Table(
        rows=2_000_000,
        disk_bytes=200_000_000,
        insert_cpu_s=[6.0],
        insert_rows=[1_000_000],
        query_cpu_ms={"trace by id": [30.0, 25.0]},
    )

    text = page(Results("a machine", "26.9", {"2000000": {"ours": ours, "otel": otel}}))

    assert "| insert, CPU s per million rows | 2.00 (3.00; 8.00) | 6.00 |" in text
    assert "| insert, rows/s/core | 500,000 | 166,667 |" in text
    assert "| bytes per span, merged | 70.0 | 100.0 |" in text
    assert "| trace by id | 10 (12; 40) | 25 (30; 30) | 2.5 |" in text


def test_page_shows_the_cores_that_each_rate_needs() -> None:
    moments = [Moment(60.0, 6_000_000, 1, 9, 9, 0, 0, 12_000_000, 1 << 20, 90.0)]
    sustained = {
        rate: Sustained(float(rate), 60.0, [1.0, 2.0, 3.0], moments, "kept up", "a machine", "26.9")
        for rate in ("100000", "50000")
    }

    text = page(Results("a machine", "26.9", sustained=sustained))

    assert text.index("## 50,000 spans a second for 1 minutes") < text.index("## 100,000 spans a second")
    assert "took 15.0 CPU seconds; at that cost\nthe goal of 150,000 spans a second takes 2.2 cores." in text
    assert "| 60 | 6,000,000 | 1 | 9 | 0 | 0 | 2.0 | 1 | 1.50 |" in text


def make_moments(parts: list[int], queued: int = 0) -> list[Moment]:
    return [
        Moment(float(index), 1, queued, count, count, 0, 0, 0, 1, 1.0) for index, count in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("moments", "stored_all", "verdict"),
    [
        pytest.param(make_moments([10] * 9), True, "kept up: ", id="flat"),
        pytest.param(
            make_moments([10, 10, 10, 20, 20, 20, 40, 40, 40]), True, "did not keep up: ", id="parts grow"
        ),
        pytest.param(make_moments([10] * 9, queued=50), True, "did not keep up: ", id="queue grows"),
        pytest.param(make_moments([10] * 9), False, "did not keep up: ", id="rows are missing"),
        pytest.param(make_moments([10]), True, "too short to tell", id="single moment"),
    ],
)
def test_verdict_is_did_not_keep_up_if_parts_or_queue_grow(
    moments: list[Moment], *, stored_all: bool, verdict: str
) -> None:
    assert verdict_on(moments, stored_all=stored_all).startswith(verdict)


def test_results_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    Results("a machine", "26.9", {"10": {"ours": Table(rows=10), "otel": Table(rows=10)}}).write(path)

    reread = Results.read(path)

    assert reread.sizes["10"]["ours"].rows == 10
    assert Results.read(tmp_path / "none.json") == Results()


def test_duration_is_a_number_and_a_unit() -> None:
    assert [seconds_of(text) for text in ("90s", "30m", "1h")] == [90, 1_800, 3_600]
    with pytest.raises(click.BadParameter, match="expected a number"):
        seconds_of("half an hour")


@pytest.mark.parametrize(
    ("spans_per_s", "age_s"), [(20_000, 1.0), (25_000, 3.0), (50_000, 3.0), (100_000, 2.0)]
)
def test_segments_of_a_sustained_run_are_sealed_as_by_an_intake(spans_per_s: int, age_s: float) -> None:
    assert segment_s(spans_per_s, Journal()) == age_s


def test_sustained_run_records_the_state_of_the_store(engine_dir: Path) -> None:
    log_lines: list[str] = []

    moments, insert_ms, verdict = sustain(
        2.0 * BODY_SPANS, 3.0, engine_dir.parent, log_lines.append, every_s=0.2
    )

    assert len(log_lines) == len(moments)
    assert moments[-1].rows == 6 * BODY_SPANS
    assert moments[-1].parts >= 1
    assert moments[-1].disk_bytes > 0
    assert moments[-1].parts_of_today_max >= 1
    assert len(insert_ms) == 3
    assert not verdict.startswith("did not keep up: not all")
