"""Rows by day equal the slots of the day, or are not read, after damage, late spans and kills."""

from __future__ import annotations

import random

import pytest

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.rollup.derivation import derive
from receiver.console.queries.rollup.tables import HOURS_OF_DAY, ROLLUPS
from receiver.engine.store import Store
from tests.support.random_filters import Span, insert
from tests.support.rollups import (
    CLOSING,
    DAY_S,
    FROM_NS,
    HOUR_S,
    MIDNIGHT_S,
    TO_NS,
    Killed,
    KilledStore,
    assert_equal,
    derive_all,
    span_at,
)

YESTERDAY = MIDNIGHT_S // DAY_S


def days_read(store: Store) -> list[set[int]]:
    """Return the days that queries of each rollup read by day."""
    wanted = (Wanted(FROM_NS, TO_NS, rollup) for rollup in ROLLUPS)
    return [set(red_source(store, each).covered.days) for each in wanted]


def rows(store: Store, table: str) -> int:
    return int(store.rows(f"SELECT count() FROM {table}")[0][0])  # noqa: S608 - ours


def test_whole_days_are_read_by_day(store: Store, spans: list[Span]) -> None:
    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert rows(store, "otel_red_day") < rows(store, "otel_red")
    assert_equal(store, spans, slots_min=40)
    # Half an hour of the day is missing, so its other hours are read by hour.
    assert_equal(store, spans, from_ns=(MIDNIGHT_S + 1_800) * 10**9, slots_min=23)


def test_late_span_is_read_beside_the_day(store: Store, spans: list[Span]) -> None:
    late = [span_at(random.Random(32), 1_000, MIDNIGHT_S + 5_000, CLOSING.now_s)]
    insert(store, late)

    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert_equal(store, spans + late, slots_min=40)


def test_day_is_not_read_after_an_hour_was_derived_again(store: Store, spans: list[Span]) -> None:
    late = [span_at(random.Random(33), 1_000, MIDNIGHT_S + 5_000, MIDNIGHT_S + 5_001)]
    insert(store, late)
    spans += late
    derive(store, [(MIDNIGHT_S + 5_000) // HOUR_S], CLOSING)

    assert days_read(store) == [set(), set()]
    assert_equal(store, spans, slots_min=40)
    derive_all(store)
    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert_equal(store, spans, slots_min=40)


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE otel_red_day DELETE WHERE SpanKind = 'Server' SETTINGS mutations_sync = 1",
        "TRUNCATE TABLE otel_red_day",
        "INSERT INTO otel_red_day SELECT * FROM otel_red_day WHERE SpanKind = 'Server'",
        "INSERT INTO otel_red_day SELECT * REPLACE (Version + 1 AS Version) FROM otel_red_day LIMIT 1",
    ],
    ids=["lost rows", "no rows", "repeated rows", "rows of another version"],
)
def test_damaged_day_is_not_read_and_written_again(store: Store, spans: list[Span], damage: str) -> None:
    is_complete = damage.endswith("LIMIT 1")
    # A merge would remove the repeated rows; a DELETE waits for one.
    if damage.startswith("INSERT"):
        store.command("SYSTEM STOP MERGES otel_red_day")
    store.command(damage)

    assert days_read(store)[0] == ({YESTERDAY} if is_complete else set())
    assert_equal(store, spans, slots_min=40)
    derive_all(store)
    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert_equal(store, spans, slots_min=40)


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_while_a_day_is_written_changes_no_answer(
    store: Store, spans: list[Span], *, is_after: bool
) -> None:
    for statement in range(30):
        store.command("TRUNCATE TABLE otel_red_day")
        try:
            derive_all(KilledStore(store, statement, is_after=is_after))  # type: ignore[arg-type]  # only what is used
        except Killed:
            assert_equal(store, spans, slots_min=40)
        else:
            break

    assert statement < 29
    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert_equal(store, spans, slots_min=40)


def test_day_that_was_written_twice_at_once_is_read_once(store: Store, spans: list[Span]) -> None:
    store.command("SYSTEM STOP MERGES otel_red_day")
    store.command("INSERT INTO otel_red_day SELECT * REPLACE (Version + 1 AS Version) FROM otel_red_day")

    assert days_read(store) == [{YESTERDAY}, {YESTERDAY}]
    assert_equal(store, spans, slots_min=40)


def test_versions_after_lost_slots_match_no_row_of_a_day(store: Store, spans: list[Span]) -> None:
    store.command("TRUNCATE TABLE otel_rollup_slots")
    store.command("TRUNCATE TABLE otel_red")
    first = MIDNIGHT_S // HOUR_S
    for hour in range(first, first + HOURS_OF_DAY, 6):
        derive(store, [*range(hour, hour + 6)], CLOSING)

    assert days_read(store) == [set(), set()]
    assert_equal(store, spans, slots_min=24)
