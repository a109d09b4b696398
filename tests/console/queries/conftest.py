"""Stores of the tests of queries. They share the tables of the embedded engine; each file has its spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from receiver.engine.store import Store
from tests.support import engines
from tests.support.random_filters import Span, insert


@pytest.fixture(scope="session")
def tables(engine_dir: Path) -> Iterator[Store]:
    """Create the tables once, because that takes longer than most tests."""
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def spans() -> Sequence[Span]:
    """Return the spans to store. A test file has its own fixture of this name."""
    return []


@pytest.fixture(scope="module", params=engines.BOTH_KINDS)
def store(request: pytest.FixtureRequest, spans: Sequence[Span]) -> Iterator[Store]:
    """Yield each kind of store with the spans."""
    if request.param == "embedded":
        tables: Store = request.getfixturevalue("tables")
        insert(tables, spans)
        yield tables
        engines.delete_rows(tables)
        return
    with engines.over_http(request.getfixturevalue("server_url")) as store:
        insert(store, spans)
        yield store
