"""The service map equals plain Python over the stored spans, from the rollup of calls and from the spans."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from receiver.console.queries.rollup.calls import derive_calls, due_calls
from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.rollup.tables import HOUR_NS
from receiver.engine.store import Parameters, Store
from tests.console.rollup.conftest import Derived, copy_tables, derived_once
from tests.support import engines
from tests.support.answers import ask
from tests.support.call_rollups import assert_equal, call, call_spans, hours_of
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import (
    DAY_S,
    FROM_NS,
    HOUR_S,
    MIDNIGHT_S,
    TO_NS,
    InterleavedStore,
    Killed,
    KilledStore,
    derive_all,
)

DAY = MIDNIGHT_S // DAY_S
NOON = MIDNIGHT_S // HOUR_S + 12
LATER = Closing(NOW_S + 601, 600)


@pytest.fixture(scope="module")
def derived_calls(engine_dir: Path) -> Iterator[Derived]:
    with derived_once(engine_dir, call_spans(random.Random(81))) as derived:
        yield derived


@pytest.fixture
def spans(store: Store, derived_calls: Derived) -> list[Span]:
    """Return the spans of the store, whose closed hours are derived."""
    copy_tables(store, derived_calls.database)
    return [*derived_calls.spans]


@engines.EACH_KIND
def test_service_map_equals_the_spans_in_any_range(store: Store) -> None:
    rng = random.Random(80)
    spans = call_spans(rng)
    insert(store, spans)
    assert_equal(store, spans)
    derive_all(store)

    assert_equal(store, spans, hours_min=40)
    for _ in range(5):
        from_ns = rng.randrange(FROM_NS, TO_NS - 30 * HOUR_NS)
        assert_equal(store, spans, (from_ns, from_ns + rng.randrange(4 * HOUR_NS, 20 * HOUR_NS)))


def test_calls_are_derived_once(store: Store, spans: list[Span]) -> None:
    before = store.rows("SELECT count() FROM otel_calls")
    derive_all(store)

    assert before != [(0,)]
    assert store.rows("SELECT count() FROM otel_calls") == before
    assert_equal(store, spans, hours_min=40)


@pytest.mark.parametrize("start_s", [-60, HOUR_S + 30])
def test_caller_that_arrives_late_is_found(store: Store, spans: list[Span], start_s: int) -> None:
    rng = random.Random(82)
    caller = call(rng, 9_000, None, NOON * HOUR_S + start_s, NOW_S) | {"ServiceName": "late"}
    called = call(rng, 9_001, caller, NOON * HOUR_S + 10) | {"SpanKind": "Server", "ServiceName": "web"}
    # In time, so that the hour has a slot with the call.
    insert(store, [called | {"ReceivedAt": f"{NOON * HOUR_S + 11}.000"}])
    derive_all(store)
    assert_equal(store, [*spans, called], filters=[""], hours_min=40)
    insert(store, [caller])

    spans += [called, caller]
    assert_equal(store, spans, filters=[""], hours_min=30)
    late_hour = caller["start_ns"] // HOUR_NS
    assert hours_of(store).isdisjoint(range(late_hour - 1, late_hour + 2))
    derive_all(store, LATER)
    assert_equal(store, spans, filters=[""], hours_min=40)
    assert hours_of(store) >= {*range(late_hour - 1, late_hour + 2)}


def test_deleted_callers_have_no_calls(store: Store, spans: list[Span]) -> None:
    store.command("DELETE FROM otel_traces WHERE ServiceName = 'web'")
    left = [span for span in spans if span["ServiceName"] != "web"]

    assert_equal(store, left, filters=[""])
    derive_all(store)
    assert_equal(store, left, filters=[""], hours_min=40)


@engines.OWN_TABLES
def test_caller_that_is_changed_on_the_day_before_changes_the_first_hour(store: Store) -> None:
    rng = random.Random(83)
    caller = call(rng, 9_000, None, MIDNIGHT_S - 5) | {"ServiceName": "web"}
    called = call(rng, 9_001, caller, MIDNIGHT_S + 5) | {"SpanKind": "Server", "ServiceName": "cart"}
    insert(store, [caller, called])
    derive_all(store)
    assert MIDNIGHT_S // HOUR_S in hours_of(store)
    day = store.rows(f"SELECT toString(toYYYYMMDD(toDateTime({MIDNIGHT_S - DAY_S}, 'UTC')))")[0][0]
    store.command(
        f"ALTER TABLE otel_traces UPDATE SpanId = 'another' IN PARTITION ID '{day}' WHERE 1 "
        "SETTINGS mutations_sync = 1"
    )

    assert_equal(store, [], filters=[""])
    derive_all(store)
    assert MIDNIGHT_S // HOUR_S in hours_of(store)
    assert_equal(store, [], filters=[""])


def test_hours_after_a_dropped_day_find_no_caller_in_it(store: Store, spans: list[Span]) -> None:
    day = store.rows(f"SELECT toString(toYYYYMMDD(toDateTime({MIDNIGHT_S - DAY_S}, 'UTC')))")[0][0]
    store.command(f"ALTER TABLE otel_traces DROP PARTITION ID '{day}'")

    assert_equal(store, [span for span in spans if span["start_ns"] >= MIDNIGHT_S * 10**9], hours_min=10)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} DELETE WHERE Source != '' AND cityHash64(Hour) % 2 SETTINGS mutations_sync = 1",
        "ALTER TABLE {} DELETE WHERE Source = '' SETTINGS mutations_sync = 1",
        "TRUNCATE TABLE {}",
        "INSERT INTO {0} SELECT * REPLACE (Version + 1 AS Version) FROM {0} WHERE Source != ''",
    ],
)
def test_rollup_that_lost_or_repeats_rows_changes_no_answer(
    store: Store, spans: list[Span], change: str
) -> None:
    store.command(change.format("otel_calls"))

    assert_equal(store, spans, filters=[""])
    derive_all(store)
    assert_equal(store, spans, filters=[""], hours_min=40)


@engines.OWN_TABLES
def test_service_map_without_the_table_of_calls_equals_the_spans(store: Store, spans: list[Span]) -> None:
    store.command("DROP TABLE otel_calls SYNC")

    assert_equal(store, spans)


@pytest.mark.parametrize("is_caller", [False, True])
def test_hour_of_a_call_that_two_projects_store_is_read_from_the_spans(
    store: Store, spans: list[Span], *, is_caller: bool
) -> None:
    rng = random.Random(84)
    caller = call(rng, 9_000, None, NOON * HOUR_S) | {"ServiceName": "web", "ProjectId": "prj_1"}
    called = call(rng, 9_001, caller, NOON * HOUR_S + 1) | {"SpanKind": "Server", "ServiceName": "cart"}
    called["ProjectId"] = "prj_1"
    spans += (more := [caller, called, (caller if is_caller else called) | {"ProjectId": "prj_2"}])
    insert(store, more)
    derive_all(store)

    assert_equal(store, spans, hours_min=39)
    assert hours_of(store) & {NOON - 1, NOON, NOON + 1} == {NOON - 1, NOON + 1}
    assert due_calls(store, DAY, LATER.received_to_ms) == {}


def test_spans_that_arrive_during_a_derivation_are_not_missed(store: Store, spans: list[Span]) -> None:
    rng = random.Random(85)

    # After the slots were read, and after the rows were written.
    for statement in (3, 5):
        caller = call(rng, 9_000 + 2 * statement, None, NOON * HOUR_S, NOW_S) | {"ServiceName": "late"}
        called = call(rng, 9_001 + 2 * statement, caller, NOON * HOUR_S) | {"SpanKind": "Server"}
        insert(store, [called])
        derive_all(store, LATER)
        store.command("TRUNCATE TABLE otel_calls")
        interleaved: Any = InterleavedStore(store, statement, partial(insert, store, [caller]))
        derive_calls(interleaved, NOON - 1, NOON + 2, due_calls(interleaved, DAY, LATER.received_to_ms))

        assert interleaved.left <= 0
        spans += [called, caller]
        assert_equal(store, spans, filters=[""])
        derive_all(store, Closing(NOW_S + 601 + statement, 600))
        assert_equal(store, spans, filters=[""], hours_min=40)


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_statement_of_a_derivation_changes_no_answer(
    store: Store, spans: list[Span], *, is_after: bool
) -> None:
    store.command("TRUNCATE TABLE otel_calls")
    keys = due_calls(store, DAY, LATER.received_to_ms)
    for statement in range(5):
        killed: Any = KilledStore(store, statement, is_after=is_after)
        try:
            derive_calls(killed, NOON - 1, NOON + 2, keys)
        except Killed:
            assert_equal(store, spans, filters=[""])
        else:
            break

    assert statement == 3
    assert hours_of(store) == {NOON - 1, NOON, NOON + 1}
    assert_equal(store, spans, filters=[""])


@pytest.mark.usefixtures("spans")
def test_derivation_that_ends_during_a_query_is_noticed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, lines = list[bool](), store.lines

    def changing(statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        pieces = list(lines(statement, parameters))
        reads.append("ClientName AS client" in statement)
        if len(reads) == 1:
            store.command("TRUNCATE TABLE otel_calls")
        return iter(pieces)

    monkeypatch.setattr(store, "lines", changing)

    found = ask(store, "service-map", since="36h")
    assert reads == [True, False]
    assert found == ask(store, "service-map", since="36h")


def test_newest_hours_are_derived_three_at_once(store: Store) -> None:
    insert(store, call_spans(random.Random(86)))
    derived = list[int]()
    for hour in range(7):
        derive_all(store, Closing((NOON + hour) * HOUR_S + 600, 600))
        rows = store.rows("SELECT toInt64(max(Hour)) FROM otel_calls")
        derived.append(rows[0][0] // HOUR_S - NOON)

    assert derived == [-2, -2, -2, 1, 1, 1, 4]
