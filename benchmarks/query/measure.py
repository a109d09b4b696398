"""Measurement of the cases: tables are filled in one process, each case is asked in a new one.

A new process has no caches, so the first answer is the cold one. Both tables are then asked alternately, so
that other work on the machine affects both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from clickhouse_connect.driver.client import Client

from benchmarks.query.cases import Case, cases
from benchmarks.query.results import CaseResult, Measured, Timing
from benchmarks.query.values import Values, choose_values
from benchmarks.store.segments import SegmentMaker, days_before, segment_files, varied
from benchmarks.store.tables import Clock, ComparedTable, Name, clocked
from receiver.console.queries.rollup.derivation import Closing, derive_due
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.store import Store
from receiver.settings import Settings

Log = Callable[[str], None]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
NAMES: tuple[Name, Name] = ("ours", "otel")
SEGMENTS_PER_LOG_LINE = 10
CACHES = (
    "MARK",
    "PRIMARY INDEX",
    "UNCOMPRESSED",
    "INDEX MARK",
    "INDEX UNCOMPRESSED",
    "QUERY CONDITION",
    "COMPILED EXPRESSION",
)
"""The engine's caches. Its data stays in the cache of the operating system."""


class OneThreadStore(EmbeddedStore):
    """The embedded store with one thread per query, so that CPU time and wall-clock time are of one core."""

    def _open(self) -> Client:
        client = super()._open()
        client.set_client_setting("max_threads", "1")
        # A repeated query would otherwise skip the granules in which its first run found no matching row.
        client.set_client_setting("use_query_condition_cache", "0")
        return client


class Size(NamedTuple):
    """Size of the tables."""

    spans: int
    projects: int

    def __str__(self) -> str:
        return f"{self.spans:,} spans in {self.projects:,} projects"


def measure(
    size: Size, directory: Path, log: Log, *, runs: int, questions: Sequence[str] = ()
) -> list[CaseResult]:
    """Fill both tables in this directory and measure the cases of these questions; without any, all cases."""
    store = directory / "store"
    values = in_new_process(fill, size, store, log)
    return [
        in_new_process(ask, case, values, store, runs, log)
        for case in cases(values)
        if not questions or case.question in questions
    ]


def in_new_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Return the result of a function of this module that opens the engine."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments, **named).result()


def fill(size: Size, directory: Path, log: Log) -> Values:
    """Create and fill both tables, each day merged into one part, and choose the values to ask for."""
    log(f"{size}: generating")
    maker = SegmentMaker(varied(*size), projects=size.projects)
    tables = [ComparedTable(name, directory) for name in NAMES]
    for table in tables:
        table.create()
        table.set_merges("STOP")
    inserted = 0
    for number, (segment, rows) in enumerate(segment_files(maker, size.spans, directory.parent), 1):
        for table in tables:
            table.insert(segment)
        inserted += rows
        if number % SEGMENTS_PER_LOG_LINE == 0:
            log(f"{inserted:,} spans inserted")
    for table in tables:
        table.merge()
        if table.rows() != inserted:
            raise AssertionError(f"{table.name} holds {table.rows()} rows; expected {inserted}")
        log(f"{table.name}: merged")
    closing = Closing(int(time.time()), Settings().store.rollup_closing_age_s)
    hours = sum(len(derived) for derived in derive_due(tables[0].store, closing))
    log(f"rollups of {hours} hours derived")
    values = choose_values(tables[0].store, *days_before(datetime.now(UTC)))
    for table in tables:
        table.store.close()
    return values


def ask(case: Case, values: Values, directory: Path, runs: int, log: Log) -> CaseResult:
    """Ask both tables, first with empty caches, then several times alternately."""
    tables = {name: ComparedTable(name, directory, OneThreadStore) for name in NAMES}
    asked: dict[Name, Callable[[], int]] = {"ours": lambda: case.lines(tables["ours"].store, time.time())}
    if case.exporter_sql is not None:
        sql = case.exporter_sql
        asked["otel"] = lambda: _exporter_lines(tables["otel"].store, sql, values)
    measured = {name: _cold(tables[name].store, function) for name, function in asked.items()}
    for _ in range(runs):
        for name, function in asked.items():
            with clocked() as clock:
                function()
            measured[name].warm.append(_timing(clock))
    for table in tables.values():
        table.store.close()
    log(f"{case.name}: " + ", ".join(f"{name} {_least(each):,.1f} ms" for name, each in measured.items()))
    return CaseResult(case.name, case.goal_ms, measured)


def _cold(store: Store, function: Callable[[], int]) -> Measured:
    store.rows("SELECT count() FROM system.one")  # connects, which is not part of a query
    for cache in CACHES:
        store.command(f"SYSTEM DROP {cache} CACHE")
    with clocked() as clock:
        lines = function()
    return Measured(lines, _timing(clock), [])


def _exporter_lines(store: Store, sql: str, values: Values) -> int:
    parameters = {
        "project": values.project,
        "service": values.service,
        "trace": values.trace_id,
        "rare": values.rare_value,
    }
    pieces = store.lines(f"{sql} SETTINGS session_timezone = 'UTC'", parameters)
    return sum(piece.count(b"\n") for piece in pieces)


def _timing(clock: Clock) -> Timing:
    return Timing(round(clock.cpu_s * 1e3, 2), round(clock.wall_s * 1e3, 2))


def _least(measured: Measured) -> float:
    return min(measured.warm_cpu_ms, default=measured.cold.cpu_ms)
