"""Stores of the tests of rollups. They share tables, and a derivation of the hours of three days."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from receiver.console.queries.rollup.proof import nodes_of
from receiver.console.queries.rollup.tables import SLOTS, TABLES
from receiver.engine import schema
from receiver.engine.store import TABLE, Store
from tests.support import engines
from tests.support.attribute_rollups import PROMOTED
from tests.support.fake_clickhouse import schema_sources
from tests.support.random_filters import Span, insert
from tests.support.rollups import derive_all, random_spans


class Derived(NamedTuple):
    """A database with random spans, whose closed hours are derived. No test changes it."""

    database: str
    spans: Sequence[Span]


@pytest.fixture(scope="session")
def tables(engine_dir: Path) -> Iterator[Store]:
    """Yield the store whose tables most tests use."""
    with engines.embedded(engine_dir) as store:
        schema.apply(store, schema_sources(), 30, PROMOTED)
        yield store


@contextmanager
def derived_once(engine_dir: Path, spans: Sequence[Span]) -> Iterator[Derived]:
    """Derive the closed hours of spans once, because that takes longer than most tests."""
    with engines.embedded(engine_dir) as store:
        schema.apply(store, schema_sources(), 30, PROMOTED)
        insert(store, spans)
        derive_all(store)
        yield Derived(str(store.rows("SELECT currentDatabase()")[0][0]), spans)


@pytest.fixture(scope="session")
def derived(engine_dir: Path) -> Iterator[Derived]:
    with derived_once(engine_dir, random_spans(random.Random(31))) as derived:
        yield derived


@pytest.fixture(params=engines.KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield a store without spans. `own`: with tables of its own, which the test may change."""
    if request.param == "embedded":
        tables: Store = request.getfixturevalue("tables")
        yield tables
        tables.command("SYSTEM START MERGES")
        engines.delete_rows(tables)
        return
    opened = (
        engines.embedded(request.getfixturevalue("engine_dir"))
        if request.param == "own"
        else engines.over_http(request.getfixturevalue("server_url"))
    )
    with opened as store:
        schema.apply(store, schema_sources(), 30, PROMOTED)
        yield store


@pytest.fixture
def spans(store: Store, derived: Derived) -> list[Span]:
    """Return the spans of the store, whose closed hours are derived."""
    if store.embedded:
        copy_tables(store, derived.database)
    else:
        insert(store, derived.spans)
        derive_all(store)
    return [*derived.spans]


def copy_tables(store: Store, database: str) -> None:
    """Copy the spans and their rollups from another database of the engine."""
    # A slot names the table that it was derived from.
    of_slot = f"* REPLACE ('{nodes_of(store)[1].id}/0' AS Source)"
    for table in (TABLE, *TABLES):
        columns = of_slot if table == SLOTS else "*"
        store.command(f"INSERT INTO {table} SELECT {columns} FROM {database}.{table}")  # noqa: S608 - ours
