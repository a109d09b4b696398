"""A proof is kept while the parts of the tables are the same, and is made again when they change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.rollup.proofs import ACCESS_DENIED
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from tests.support.hostile_filters import RecordingStore
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import FROM_NS, MIDNIGHT_S, TO_NS, assert_equal, span_at

WANTED = Wanted(FROM_NS, TO_NS)


class WatchedStore(RecordingStore):
    """Store that counts proofs. Without `may_list_parts`, it refuses to list parts."""

    may_list_parts = True

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        if "system.parts" in statement and not self.may_list_parts:
            raise StoreTrouble("not enough privileges", code=ACCESS_DENIED)
        return super().rows(statement, parameters)

    def days_proven(self) -> int:
        """Return how many statements counted the spans of days, and clear the statements."""
        count = sum("'late'" in statement for statement in self.statements)
        self.statements.clear()
        return count


@pytest.mark.usefixtures("spans")
def test_proof_is_made_once_until_parts_change(store: Store) -> None:
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


@pytest.mark.usefixtures("spans")
def test_change_of_the_rollup_makes_every_proof_again(store: Store) -> None:
    watched: Any = WatchedStore(store)
    assert len(red_source(watched, WANTED).slots) >= 40
    store.command("ALTER TABLE otel_red DELETE WHERE 1 SETTINGS mutations_sync = 1")

    assert red_source(watched, WANTED).slots == {}


@pytest.mark.usefixtures("spans")
def test_merge_of_a_rollup_does_not_invalidate_an_answer(store: Store) -> None:
    source = red_source(store, WANTED)
    store.command("OPTIMIZE TABLE otel_rollup_slots FINAL")
    store.command("OPTIMIZE TABLE otel_red FINAL")

    assert red_source(store, WANTED).parts != source.parts
    assert source.is_unchanged(store)


def test_rollup_is_proven_for_each_query_if_parts_must_not_be_listed(store: Store, spans: list[Span]) -> None:
    watched: Any = WatchedStore(store)
    watched.may_list_parts = False

    assert len(red_source(watched, WANTED).slots) >= 40
    assert red_source(watched, WANTED).is_unchanged(watched)
    assert watched.days_proven() == 3
    assert_equal(watched, spans, slots_min=40)
