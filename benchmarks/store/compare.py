"""Comparison of both tables in one engine: CPU time of inserts, merges and queries of the same spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.store.queries import SearchValues, choose_search_values, queries
from benchmarks.store.results import Table
from benchmarks.store.segments import SegmentMaker, days_before, segment_files, varied
from benchmarks.store.tables import ComparedTable, Name, clocked

Log = Callable[[str], None]
SEGMENTS_PER_LOG_LINE = 10
RUNS = 7
"""Counted runs of every query, after a warm-up run."""


def compare(spans: int, directory: Path, log: Log) -> dict[Name, Table]:
    """Measure both tables with this number of spans, and drop them."""
    log(f"{spans:,} spans: generating {varied(spans):,} different spans")
    maker, (began, ended) = SegmentMaker(varied(spans)), days_before(datetime.now(UTC))
    tables = [ComparedTable(name, directory / "store") for name in ("ours", "otel")]
    results = {table.name: Table() for table in tables}
    for table in tables:
        table.create()
        table.set_merges("STOP")
    for number, (segment, rows) in enumerate(segment_files(maker, spans, directory), 1):
        _insert(tables, segment, rows, results)
        if number % SEGMENTS_PER_LOG_LINE == 0:
            log(f"{sum(results['ours'].insert_rows):,} spans inserted, {_costs(results)}")
    _merge(tables, results, log)
    _query(tables, choose_search_values(tables[0].store, began, ended), results, log)
    for table in tables:
        table.drop()
        table.store.close()
    return results


def engine_of(directory: Path) -> str:
    """Return the version of the engine."""
    table = ComparedTable("ours", directory / "store")
    version = str(table.store.rows("SELECT version()")[0][0])
    table.store.close()
    return version


def _insert(tables: Sequence[ComparedTable], segment: Path, rows: int, results: dict[Name, Table]) -> None:
    for table in tables:
        results[table.name].insert_cpu_s.append(table.insert(segment).cpu_s)
        results[table.name].insert_rows.append(rows)


def _costs(results: dict[Name, Table]) -> str:
    return ", ".join(
        f"{name} {table.insert_cpu_s_per_million[0]:.2f} CPU s per million at best"
        for name, table in results.items()
    )


def _merge(tables: Sequence[ComparedTable], results: dict[Name, Table], log: Log) -> None:
    for table in tables:
        result = results[table.name]
        result.merge_cpu_s = table.merge().cpu_s
        result.rows, result.disk_bytes = table.rows(), table.disk_bytes()
        if result.rows != sum(result.insert_rows):
            raise AssertionError(f"{table.name} holds {result.rows} rows; expected {sum(result.insert_rows)}")
        log(
            f"{table.name}: merged in {result.merge_cpu_s:.1f} CPU s, "
            f"{result.bytes_per_span:.1f} bytes per span"
        )


def _query(
    tables: Sequence[ComparedTable], search_values: SearchValues, results: dict[Name, Table], log: Log
) -> None:
    """Run every query `RUNS` times on both tables alternately."""
    queries_by_table = {table.name: queries(table.name, search_values) for table in tables}
    for index, query in enumerate(queries_by_table["ours"]):
        for run in range(RUNS + 1):
            for table in tables:
                with clocked() as clock:
                    rows = table.store.rows(queries_by_table[table.name][index].sql)
                results[table.name].query_rows[query.name] = len(rows)
                if run:
                    cpu_ms = results[table.name].query_cpu_ms
                    cpu_ms.setdefault(query.name, []).append(clock.cpu_s * 1e3)
        lowest = {name: min(result.query_cpu_ms[query.name]) for name, result in results.items()}
        log(f"{query.name}: " + ", ".join(f"{name} {ms:,.0f} ms" for name, ms in lowest.items()))
