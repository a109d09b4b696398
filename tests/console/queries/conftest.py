"""The stores that tests of questions ask: of each kind, with the spans of the test file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from receiver.engine.store import Store
from tests.support import engines
from tests.support.random_filters import Span, as_row


@pytest.fixture(scope="module")
def spans() -> Sequence[Span]:
    """Return the spans to store. A test file has its own fixture of this name."""
    return []


@pytest.fixture(scope="module", params=engines.BOTH_KINDS)
def store(request: pytest.FixtureRequest, spans: Sequence[Span]) -> Iterator[Store]:
    """Yield each kind of store with the spans."""
    directory: Path = request.getfixturevalue("engine_dir")
    opened = (
        engines.embedded(directory)
        if request.param == "embedded"
        else engines.over_http(request.getfixturevalue("server_url"))
    )
    with opened as store:
        if spans:
            store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(as_row, spans)))
        yield store
