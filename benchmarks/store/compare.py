"""Both tables with the same spans in one engine: filled in turn, merged, asked in turn. CPU time only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.store.questions import Sought, questions, sought_in
from benchmarks.store.results import Table
from benchmarks.store.segments import BODY_SPANS, SEGMENT_ROWS, Press, days_before, spread_over, varied
from benchmarks.store.tables import Compared, Name, clocked

Log = Callable[[str], None]
SEGMENTS_A_LINE = 10
RUNS = 7
"""Of every question, after one that does not count."""


def compare(spans: int, directory: Path, log: Log) -> dict[Name, Table]:
    """Measure with so many spans, and leave nothing behind in the directory."""
    log(f"{spans:,} spans: making {varied(spans):,} that differ")
    press, (began, ended) = Press(varied(spans)), days_before(datetime.now(UTC))
    tables = [Compared(name, directory / "store") for name in ("ours", "otel")]
    found = {table.name: Table() for table in tables}
    for table in tables:
        table.create()
        table.merging("STOP")
    times = spread_over(spans, began, ended)
    for number in itertools.count(1):
        segment = directory / f"{number:010d}.native.lz4"
        if not (arrivals := list(itertools.islice(times, SEGMENT_ROWS // BODY_SPANS))):
            break
        press.segment(segment, arrivals)
        _insert(tables, segment, len(arrivals) * BODY_SPANS, found)
        if number % SEGMENTS_A_LINE == 0:
            log(f"{sum(found['ours'].insert_rows):,} spans inserted, {_costs(found)}")
    _merge(tables, found, log)
    _ask(tables, sought_in(tables[0].store, began, ended), found, log)
    for table in tables:
        table.drop()
        table.store.close()
    return found


def engine_of(directory: Path) -> str:
    """Its version."""
    table = Compared("ours", directory / "store")
    version = str(table.store.rows("SELECT version()")[0][0])
    table.store.close()
    return version


def _insert(tables: Sequence[Compared], segment: Path, rows: int, found: dict[Name, Table]) -> None:
    for table in tables:
        found[table.name].insert_cpu_s.append(table.insert(segment).cpu_s)
        found[table.name].insert_rows.append(rows)
    segment.unlink()


def _costs(found: dict[Name, Table]) -> str:
    return ", ".join(
        f"{name} {table.insert_cpu_s_per_million[0]:.2f} CPU s per million at the least"
        for name, table in found.items()
    )


def _merge(tables: Sequence[Compared], found: dict[Name, Table], log: Log) -> None:
    for table in tables:
        of = found[table.name]
        of.merge_cpu_s = table.merge().cpu_s
        of.rows, of.disk_bytes = table.rows(), table.disk_bytes()
        if of.rows != sum(of.insert_rows):
            raise AssertionError(f"{table.name} holds {of.rows} rows; expected {sum(of.insert_rows)}")
        log(f"{table.name}: merged in {of.merge_cpu_s:.1f} CPU s, {of.bytes_per_span:.1f} bytes a span")


def _ask(tables: Sequence[Compared], sought: Sought, found: dict[Name, Table], log: Log) -> None:
    """Every question of one table, then of the other; again and again."""
    asked = {table.name: questions(table.name, sought) for table in tables}
    for place, question in enumerate(asked["ours"]):
        for run in range(RUNS + 1):
            for table in tables:
                with clocked() as clock:
                    rows = table.store.rows(asked[table.name][place].sql)
                found[table.name].question_rows[question.name] = len(rows)
                if run:
                    of = found[table.name].question_cpu_ms
                    of.setdefault(question.name, []).append(clock.cpu_s * 1e3)
        least = {name: min(of.question_cpu_ms[question.name]) for name, of in found.items()}
        log(f"{question.name}: " + ", ".join(f"{name} {ms:,.0f} ms" for name, ms in least.items()))
