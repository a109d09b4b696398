"""The storage benchmarks: the same spans in both tables, short answers, and a verdict that can be bad."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from benchmarks.store.__main__ import seconds_of
from benchmarks.store.page import page
from benchmarks.store.questions import questions, sought_in
from benchmarks.store.results import Moment, Results, Sustained, Table
from benchmarks.store.segments import BODY_SPANS, Press, days_before, spread_over
from benchmarks.store.sustain import sustain, verdict_on
from benchmarks.store.tables import Compared

SPANS = 40 * BODY_SPANS


@pytest.fixture
def tables(engine_dir: Path) -> Iterator[list[Compared]]:
    both = [Compared("ours", engine_dir), Compared("otel", engine_dir)]
    yield both
    for table in both:
        table.drop()
        table.store.close()


def test_both_tables_hold_the_same_spans_and_answer_alike(tables: list[Compared], tmp_path: Path) -> None:
    began, ended = days_before(datetime.now(UTC))
    segment = tmp_path / "1.native.lz4"
    Press(SPANS).segment(segment, spread_over(SPANS, began, ended))

    for table in tables:
        table.create()
        table.insert(segment)
        table.merge()
    sought = sought_in(tables[0].store, began, ended)
    ours, otel = (
        [table.store.rows(asked.sql) for asked in questions(table.name, sought)] for table in tables
    )

    assert [table.rows() for table in tables] == [SPANS, SPANS]
    assert all(table.disk_bytes() > 0 for table in tables)
    assert [sorted(row[0] for row in rows) for rows in ours] == [
        sorted(row[0] for row in rows) for rows in otel
    ]
    assert all(len(rows) <= 20 for rows in ours)
    assert sum(bool(rows) for rows in ours) >= 8


def test_a_page_compares_the_least_and_shows_the_spread() -> None:
    ours = Table(
        rows=2_000_000,
        disk_bytes=140_000_000,
        insert_cpu_s=[3.0, 2.0, 8.0],
        insert_rows=[1_000_000] * 3,
        merge_cpu_s=4.0,
        question_cpu_ms={"trace by id": [12.0, 10.0, 40.0]},
    )
    otel = Table(
        rows=2_000_000,
        disk_bytes=200_000_000,
        insert_cpu_s=[6.0],
        insert_rows=[1_000_000],
        question_cpu_ms={"trace by id": [30.0, 25.0]},
    )

    text = page(Results("a machine", "26.9", {"2000000": {"ours": ours, "otel": otel}}))

    assert "| insert, CPU s per million rows | 2.00 (3.00; 8.00) | 6.00 |" in text
    assert "| insert, rows/s/core | 500,000 | 166,667 |" in text
    assert "| bytes per span, merged | 70.0 | 100.0 |" in text
    assert "| trace by id | 10 (12; 40) | 25 (30; 30) | 2.5 |" in text


def test_a_page_tells_of_each_feed_what_the_goal_would_take() -> None:
    moments = [Moment(60.0, 6_000_000, 1, 9, 9, 0, 0, 12_000_000, 1 << 20, 90.0)]
    fed = {
        rate: Sustained(float(rate), 60.0, [1.0, 2.0, 3.0], moments, "kept up", "a machine", "26.9")
        for rate in ("100000", "50000")
    }

    text = page(Results("a machine", "26.9", fed=fed))

    assert text.index("## 50,000 spans a second for 1 minutes") < text.index("## 100,000 spans a second")
    assert "took 15.0 CPU seconds: at that, the goal of\n150,000 a second takes 2.2 cores." in text
    assert "| 60 | 6,000,000 | 1 | 9 | 0 | 0 | 2.0 | 1 | 1.50 |" in text


def looks(parts: list[int], queued: int = 0) -> list[Moment]:
    return [
        Moment(float(place), 1, queued, count, count, 0, 0, 0, 1, 1.0) for place, count in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("moments", "stored_all", "verdict"),
    [
        pytest.param(looks([10] * 9), True, "kept up: ", id="flat"),
        pytest.param(looks([10, 10, 10, 20, 20, 20, 40, 40, 40]), True, "did not keep up: ", id="parts grow"),
        pytest.param(looks([10] * 9, queued=50), True, "did not keep up: ", id="a queue stands"),
        pytest.param(looks([10] * 9), False, "did not keep up: ", id="rows are missing"),
        pytest.param(looks([10]), True, "too short to tell", id="one look"),
    ],
)
def test_a_feed_that_grows_parts_or_queue_did_not_keep_up(
    moments: list[Moment], *, stored_all: bool, verdict: str
) -> None:
    assert verdict_on(moments, stored_all=stored_all).startswith(verdict)


def test_results_of_one_part_leave_the_other(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    Results("a machine", "26.9", {"10": {"ours": Table(rows=10), "otel": Table(rows=10)}}).write(path)

    again = Results.read(path)

    assert again.sizes["10"]["ours"].rows == 10
    assert Results.read(tmp_path / "none.json") == Results()


def test_a_time_is_a_number_and_a_unit() -> None:
    assert [seconds_of(text) for text in ("90s", "30m", "1h")] == [90, 1_800, 3_600]
    with pytest.raises(click.BadParameter, match="expected a number"):
        seconds_of("half an hour")


def test_a_feed_is_looked_at_where_it_goes(engine_dir: Path) -> None:
    said: list[str] = []

    moments, insert_ms, verdict = sustain(2.0 * BODY_SPANS, 3.0, engine_dir.parent, said.append, every_s=0.2)

    assert len(said) == len(moments)
    assert moments[-1].rows == 6 * BODY_SPANS
    assert moments[-1].parts >= 1
    assert moments[-1].disk_bytes > 0
    assert moments[-1].parts_of_today_max >= 1
    assert len(insert_ms) == 3
    assert not verdict.startswith("did not keep up: not all")
