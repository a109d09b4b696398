"""Real engines for tests: each test gets its own database with the schema applied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.config.addresses import parse_store_url
from receiver.engine import schema
from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.embedded import EmbeddedStore
from receiver.engine.store import Store
from receiver.settings import GIB, Settings
from tests.support.fake_clickhouse import schema_sources

KINDS = ["embedded", *(["server"] if os.environ.get("TRACE_DRAIN_TEST_CLICKHOUSE") else [])]
"""Stores of a test whose claim is about SQL: without a real server, both are the same engine."""
SERVER = pytest.param("server", marks=pytest.mark.fault_tier)
"""Our own server over HTTP, for tests that run on the embedded engine as well: both are the same engine."""
BOTH_KINDS = ["embedded", SERVER]
EACH_KIND = pytest.mark.parametrize("store", BOTH_KINDS, indirect=True)
"""For tests of a fixture `store` with `BOTH_KINDS`."""
OWN_TABLES = pytest.mark.parametrize("store", ["own"], indirect=True)
"""For tests that change the tables of a fixture `store`, which shares them with other tests otherwise."""
COMPILATION = ("compile_expressions", "compile_aggregate_expressions", "compile_sort_description")
"""Settings that compile expressions to machine code, which takes longer than a query of few rows."""


def connected(url: str, *, database: str, insert_timeout_s: int = 60) -> ClickHouseStore:
    """Return a store on a server, which may be down."""
    parts = parse_store_url(url)
    assert parts is not None
    return ClickHouseStore(
        replace(parts, database=database),
        database="",
        password="",
        insert_timeout_s=insert_timeout_s,
        receiver="tests",
    )


@contextmanager
def over_http(url: str, *, database: str = "", insert_timeout_s: int = 60) -> Iterator[ClickHouseStore]:
    """Yield a store in a new database of a server, which is dropped at the end."""
    name = database or f"test_{uuid4().hex}"
    store = connected(url, database=name, insert_timeout_s=insert_timeout_s)
    schema.apply(store, schema_sources(), *schema.wanted(Settings()))
    yield store
    store.command(f"DROP DATABASE {name}")
    store.close()


def bare(directory: Path, database: str) -> EmbeddedStore:
    """Open the embedded engine without tables."""
    store = EmbeddedStore(directory, database=database, memory_bytes_max=4 * GIB, disk_free_min=lambda: 1)
    for setting in COMPILATION:
        store.command(f"SET {setting} = 0")
    return store


@contextmanager
def embedded(directory: Path) -> Iterator[EmbeddedStore]:
    """Yield a store in a new database of the embedded engine, which is dropped at the end."""
    name = f"test_{uuid4().hex}"
    store = bare(directory, name)
    schema.apply(store, schema_sources(), *schema.wanted(Settings()))
    yield store
    store.command(f"DROP DATABASE {name}")
    store.close()


def delete_rows(store: Store) -> None:
    """Delete the rows of all tables, so that another test can use them: creating tables takes longer."""
    tables = store.rows(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0 "
        "AND name != {migrations:String}",
        {"migrations": schema.MIGRATIONS},
    )
    for (table,) in tables:
        store.command(f"TRUNCATE TABLE {table}")
