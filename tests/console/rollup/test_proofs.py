"""A proof is kept while the parts of the tables are the same, and is made again when they change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.rollup.proofs import ACCESS_DENIED
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.random_filters import NOW_S
from tests.support.rollups import (
    FROM_NS,
    MIDNIGHT_S,
    TO_NS,
    assert_equal,
    derive_all,
    insert,
    random_spans,
    span_at,
)

WANTED = Wanted(FROM_NS, TO_NS)


@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


class WatchedStore:
    """Store that records its statements. Without `may_list_parts`, it refuses to list parts."""

    def __init__(self, store: Store, *, may_list_parts: bool = True) -> None:
        self._store = store
        self._may_list_parts = may_list_parts
        self.statements: list[str] = []

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        self.statements.append(statement)
        if "system.parts" in statement and not self._may_list_parts:
            raise StoreTrouble("not enough privileges", code=ACCESS_DENIED)
        return self._store.rows(statement, parameters)

    def days_proven(self) -> int:
        """Return how many statements counted the spans of days, and forget the statements."""
        count = sum("'late'" in statement for statement in self.statements)
        self.statements.clear()
        return count


def test_proof_is_made_once_until_parts_change(store: Store) -> None:
    spans = random_spans(random.Random(41))
    insert(store, spans)
    derive_all(store)
    watched: Any = WatchedStore(store)

    first, second = red_source(watched, WANTED), red_source(watched, WANTED)
    assert first == second
    assert watched.days_proven() == 1
    insert(store, [span_at(random.Random(42), 1_000, MIDNIGHT_S, NOW_S)])
    third = red_source(watched, WANTED)
    assert watched.days_proven() == 1
    assert len(third.slots) == len(first.slots)
    assert third.sql != first.sql
    assert red_source(watched, WANTED) == third
    assert watched.days_proven() == 0


def test_change_of_the_rollup_makes_every_proof_again(store: Store) -> None:
    insert(store, random_spans(random.Random(43)))
    derive_all(store)
    watched: Any = WatchedStore(store)
    assert len(red_source(watched, WANTED).slots) >= 40
    store.command("ALTER TABLE otel_red DELETE WHERE 1 SETTINGS mutations_sync = 1")

    assert red_source(watched, WANTED).slots == {}


def test_merge_of_a_rollup_does_not_invalidate_an_answer(store: Store) -> None:
    insert(store, random_spans(random.Random(44)))
    derive_all(store)
    source = red_source(store, WANTED)
    store.command("OPTIMIZE TABLE otel_rollup_slots FINAL")
    store.command("OPTIMIZE TABLE otel_red FINAL")

    assert red_source(store, WANTED).parts != source.parts
    assert source.is_unchanged(store)


def test_rollup_is_proven_for_each_query_if_parts_must_not_be_listed(store: Store) -> None:
    spans = random_spans(random.Random(45))
    insert(store, spans)
    derive_all(store)
    watched: Any = WatchedStore(store, may_list_parts=False)

    assert len(red_source(watched, WANTED).slots) >= 40
    assert red_source(watched, WANTED).is_unchanged(watched)
    assert watched.days_proven() == 3
    assert_equal(watched, spans, slots_min=40)
