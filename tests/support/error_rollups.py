"""Answers about errors and deployments with their rollups, and the same answers from the spans alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, cast

from receiver.console.queries.aggregates.proven_hours import NO_TABLE
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from tests.support.answers import ask
from tests.support.hostile_filters import RecordingStore
from tests.support.rollups import FROM_NS, TO_NS

QUESTIONS = {"errors": "otel_errors", "deployments": "otel_deployments"}
"""Question → the rollup that answers it."""
FILTERS = ("", "project=prj_1 -service=web", "service=web OR deployment=dpl_1", "name=cart status=error")


class WithoutRollups:
    """Store whose rollups were dropped."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of the store
        return getattr(self._store, name)

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        if "system.parts" in statement:
            raise StoreTrouble("no such table", code=NO_TABLE)
        return self._store.rows(statement, parameters)


def assert_equal(
    store: Store,
    bounds: tuple[int, int] = (FROM_NS, TO_NS),
    filters: Sequence[str] = FILTERS,
    *,
    reads_rollups: bool = False,
) -> None:
    """Compare the answers with and without rollups; with `reads_rollups`, both rollups are read."""
    recording: Any = RecordingStore(store)
    times = {"since": _utc(bounds[0]), "until": _utc(bounds[1])}
    for question, rollup in QUESTIONS.items():
        for text in filters:
            recording.statements.clear()
            found = ask(recording, question, filter=text, **times)
            is_read = any(f"FROM {rollup}" in statement for statement in recording.statements)
            assert found == ask(cast("Store", WithoutRollups(store)), question, filter=text, **times), text
            has_columns = question == "errors" or "name" not in text
            assert not reads_rollups or is_read == has_columns, text


def _utc(time_ns: int) -> str:
    return dt.datetime.fromtimestamp(time_ns / 1e9, dt.UTC).isoformat()
