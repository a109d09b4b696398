"""Rollups never change an answer, after any change of the spans, the receiver or the clock.

Each test compares an answer that reads slots with counts in plain Python over the spans that are stored.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from receiver.console.queries.aggregates.red_source import Covered, Wanted, red_source
from receiver.console.queries.message_template import TEMPLATE_PARAMETERS
from receiver.console.queries.rollup.derivation import Closing, Settled, derive, survey
from receiver.console.queries.rollup.slots import invalidate, read_slots
from receiver.console.queries.rollup.tables import HOUR_NS
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.support import attribute_rollups as of_attributes
from tests.support import engines
from tests.support import error_rollups as of_errors
from tests.support.attribute_rollups import DAY_NS, tables_of
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import (
    CLOSING,
    DAY_S,
    FROM_NS,
    HOUR_S,
    MIDNIGHT_S,
    TO_NS,
    InterleavedStore,
    Killed,
    KilledStore,
    assert_equal,
    derive_all,
    due_count,
    random_spans,
    span_at,
)

WANTED = Wanted(FROM_NS, TO_NS)


@engines.EACH_KIND
@pytest.mark.parametrize("seed", range(2))
def test_rollups_equal_the_spans_in_any_range(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    spans = random_spans(rng)
    insert(store, spans)
    assert_equal(store, spans)
    of_attributes.assert_equal(store, spans)
    derived = derive_all(store)

    assert len(derived) == len(set(derived)) >= 47
    assert due_count(store) == 0
    assert_equal(store, spans, slots_min=40)
    of_attributes.assert_equal(store, spans)
    of_errors.assert_equal(store, reads_rollups=True)
    for _ in range(5):
        from_ns, to_ns = sorted(rng.randrange(FROM_NS, TO_NS) for _ in range(2))
        assert_equal(store, spans, from_ns=from_ns, to_ns=to_ns)
        of_attributes.assert_equal(store, spans, (from_ns, to_ns))
        of_errors.assert_equal(store, (from_ns, to_ns))


def test_rounds_settle_whole_days(store: Store) -> None:
    spans = random_spans(random.Random(15))
    insert(store, spans)
    hour = MIDNIGHT_S // HOUR_S
    for end in range(4, 25, 4):
        derive_all(store, Closing((hour + end) * HOUR_S + 600, 600))
    derive_all(store)
    settled: Settled = {}
    derive_all(store, settled=settled)

    assert len({slot.received_to_ms for slot in read_slots(store, hour, hour + 24).values()}) == 1
    assert MIDNIGHT_S // DAY_S in settled
    assert_equal(store, spans, slots_min=40)
    late = [span_at(random.Random(16), 1_000, MIDNIGHT_S, NOW_S)]
    insert(store, late)
    assert_equal(store, spans + late, slots_min=40)


def test_late_spans_are_read_beside_their_slots_until_these_are_derived_again(
    store: Store, spans: list[Span]
) -> None:
    rng = random.Random(1)
    late = [span_at(rng, 1_000 + n, MIDNIGHT_S + n * 1_000, NOW_S) for n in range(10)]
    insert(store, late)
    spans += late

    assert_equal(store, spans, slots_min=40)
    of_attributes.assert_equal(store, spans)
    of_errors.assert_equal(store, reads_rollups=True)
    assert tables_of(store, "k") == {"rollup", "spans"}
    assert due_count(store) == 0
    later = Closing(NOW_S + 601, 600)
    assert {*derive_all(store, later)} >= {span["start_ns"] // HOUR_NS for span in late}
    assert due_count(store, later) == 0
    assert_equal(store, spans, slots_min=40)
    of_attributes.assert_equal(store, spans)
    of_errors.assert_equal(store, reads_rollups=True)
    assert tables_of(store, "k") == {"rollup"}


def test_spans_that_a_delayed_segment_stores_out_of_order_are_counted(
    store: Store, spans: list[Span]
) -> None:
    rng = random.Random(2)
    delayed = [span_at(rng, 2_000, MIDNIGHT_S + 5_000, MIDNIGHT_S + 5_001)]
    insert(store, delayed)
    spans += delayed

    assert_equal(store, spans)
    assert derive_all(store) == [(MIDNIGHT_S + 5_000) // HOUR_S]
    assert_equal(store, spans, slots_min=40)


@engines.EACH_KIND
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE otel_traces DELETE WHERE ServiceName = 'web' SETTINGS mutations_sync = 1",
        "DELETE FROM otel_traces WHERE ServiceName = 'web'",
    ],
)
def test_deleted_spans_are_not_counted(store: Store, spans: list[Span], statement: str) -> None:
    store.command(statement)
    left = [span for span in spans if span["ServiceName"] != "web"]

    assert len(left) < len(spans)
    assert_equal(store, left)
    of_attributes.assert_equal(store, left)
    of_errors.assert_equal(store)
    assert len(derive_all(store)) >= 40
    assert_equal(store, left, slots_min=40)
    of_attributes.assert_equal(store, left)
    assert tables_of(store, "k") == {"rollup"}


def test_changed_spans_are_counted_by_their_new_values(store: Store, spans: list[Span]) -> None:
    store.command("ALTER TABLE otel_traces UPDATE StatusCode = 'Ok' WHERE 1 SETTINGS mutations_sync = 1")
    changed = [span | {"StatusCode": "Ok"} for span in spans]

    assert_equal(store, changed)
    of_errors.assert_equal(store)
    derive_all(store)
    of_errors.assert_equal(store, reads_rollups=True)
    assert_equal(store, changed, slots_min=40)


def test_dropped_day_is_not_counted(store: Store, spans: list[Span]) -> None:
    day_begins_ns, day_ends_ns = MIDNIGHT_S * 10**9, (MIDNIGHT_S + DAY_S) * 10**9
    day = store.rows(f"SELECT toString(toYYYYMMDD(toDateTime({MIDNIGHT_S}, 'UTC')))")[0][0]
    store.command(f"ALTER TABLE otel_traces DROP PARTITION ID '{day}'")

    left = [span for span in spans if not day_begins_ns <= span["start_ns"] < day_ends_ns]
    assert_equal(store, left)


def test_segment_that_a_repair_inserts_again_is_counted_once(store: Store, spans: list[Span]) -> None:
    segment = random_spans(random.Random(6), 100)
    before = {part for (part,) in store.rows("SELECT DISTINCT _part FROM otel_traces")}
    store.command("SYSTEM STOP MERGES otel_traces")
    insert(store, segment)
    derive_all(store)
    assert_equal(store, spans + segment, slots_min=40)

    parts = {part for (part,) in store.rows("SELECT DISTINCT _part FROM otel_traces")} - before
    for part in parts:
        store.command(f"ALTER TABLE otel_traces DETACH PART '{part}'")
    assert_equal(store, spans)
    insert(store, segment)
    assert_equal(store, spans + segment)
    derive_all(store)
    assert_equal(store, spans + segment, slots_min=40)


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_statement_changes_no_answer(store: Store, spans: list[Span], *, is_after: bool) -> None:
    rng = random.Random(7)
    hour = MIDNIGHT_S // HOUR_S + 3
    for statement in range(30):
        late = [span_at(rng, 3_000 + statement, hour * HOUR_S, NOW_S - 599 + statement)]
        insert(store, late)
        spans += late
        closing = Closing(NOW_S + statement + 1, 600)
        try:
            derive(KilledStore(store, statement, is_after=is_after), [hour], closing)  # type: ignore[arg-type]  # only what is used
        except Killed:
            assert_equal(store, spans, slots_min=40)
            of_attributes.assert_equal(store, spans, DAY_NS)
            of_errors.assert_equal(store, DAY_NS, [""])
        else:
            break

    assert 12 <= statement < 29
    assert hour in read_slots(store, hour, hour + 1)
    assert_equal(store, spans, slots_min=40)
    of_attributes.assert_equal(store, spans, DAY_NS)


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("table", of_errors.QUESTIONS.values())
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} DELETE WHERE Source != '' AND cityHash64(Hour) % 2 SETTINGS mutations_sync = 1",
        "ALTER TABLE {} DELETE WHERE Source = '' SETTINGS mutations_sync = 1",
        "TRUNCATE TABLE {}",
        "INSERT INTO {0} SELECT * REPLACE (Version + 1 AS Version) FROM {0} WHERE Source != ''",
    ],
)
def test_rollup_of_errors_that_lost_or_repeats_rows_changes_no_answer(
    store: Store, table: str, change: str
) -> None:
    store.command(change.format(table))

    of_errors.assert_equal(store, filters=["", "project=prj_1"])
    derive_all(store)
    assert due_count(store) == 0
    of_errors.assert_equal(store, filters=["project=prj_1"], reads_rollups=True)


@pytest.mark.usefixtures("spans")
def test_errors_are_derived_again_when_their_definition_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TEMPLATE_PARAMETERS, "replacement_0", "<quoted>")

    of_errors.assert_equal(store, filters=[""])
    assert len(derive_all(store)) >= 40
    of_errors.assert_equal(store, filters=[""], reads_rollups=True)


@pytest.mark.usefixtures("spans")
def test_derivation_that_ends_during_a_query_is_noticed(store: Store) -> None:
    source = red_source(store, WANTED)
    hour = max(source.slots)

    assert source.is_unchanged(store)
    derive(store, [hour], CLOSING)
    assert not source.is_unchanged(store)


@pytest.mark.parametrize("step_s", [-7_200, -400 * DAY_S, 7_200, 400 * DAY_S])
def test_clock_that_was_set_changes_no_answer(store: Store, step_s: int) -> None:
    rng = random.Random(9)
    spans = random_spans(rng)
    insert(store, spans)
    derive_all(store, Closing(NOW_S + step_s, 600))
    assert_equal(store, spans)

    # The clock is right again: these spans are received before the time up to which slots may cover them.
    more = [span_at(rng, 4_000 + n, NOW_S - n * 1_800, NOW_S - n) for n in range(10)]
    insert(store, more)
    spans += more
    assert_equal(store, spans)
    derive_all(store)
    derive_all(store, Closing(NOW_S + 2 * HOUR_S, 600))
    assert_equal(store, spans, slots_min=40)


def lose_rows(store: Store) -> None:
    store.command("ALTER TABLE otel_red DELETE WHERE SpanKind = 'Server' SETTINGS mutations_sync = 1")


def lose_table(store: Store) -> None:
    store.command("DROP TABLE otel_red SYNC")
    store.command("DROP TABLE otel_rollup_slots SYNC")


def empty_all(store: Store) -> None:
    invalidate(store, None)


@pytest.mark.parametrize(
    ("store", "damage"),
    [
        ("embedded", lose_rows),
        pytest.param("server", lose_rows, marks=pytest.mark.fault_tier),
        ("own", lose_table),
        ("embedded", empty_all),
    ],
    indirect=["store"],
)
def test_damaged_rollup_is_not_read_and_derived_again(
    store: Store, spans: list[Span], damage: Callable[[Store], None]
) -> None:
    damage(store)

    source = red_source(store, WANTED)
    rows = store.rows(f"SELECT sum(Spans) FROM {source.sql}", source.parameters)  # noqa: S608 - ours
    assert rows == [(sum(FROM_NS <= span["start_ns"] < TO_NS for span in spans),)]
    # `lose_rows` does not damage a day whose closed hours have no Server span, as shortly after midnight
    server_hours = {span["start_ns"] // HOUR_NS for span in spans if span["SpanKind"] == "Server"}
    damaged_days = {hour * HOUR_S // DAY_S for hour in server_hours if hour < CLOSING.hour_end}
    assert damaged_days.isdisjoint(hour * HOUR_S // DAY_S for hour in source.slots)
    if damage is not lose_table:
        assert derive_all(store)
        assert_equal(store, spans, slots_min=40)


@engines.EACH_KIND
def test_two_derivations_of_an_hour_at_once_leave_one_result(store: Store, spans: list[Span]) -> None:
    hour = MIDNIGHT_S // HOUR_S

    for statement in range(1, 10):
        interleaved: Any = InterleavedStore(store, statement, lambda: derive(store, [hour], CLOSING))
        derive(interleaved, [hour], CLOSING)
        assert_equal(store, spans, slots_min=40)


def test_invalidation_from_an_hour_keeps_earlier_slots(store: Store, spans: list[Span]) -> None:
    count = len(read_slots(store, 0, CLOSING.hour_end))
    invalidate(store, MIDNIGHT_S // HOUR_S)

    assert 0 < due_count(store) < count
    assert_equal(store, spans)
    assert len(derive_all(store)) + 24 == count


def test_store_without_tables_has_nothing_to_derive(engine_dir: Path) -> None:
    database = f"empty_{uuid4().hex}"
    store = engines.bare(engine_dir, database)

    assert derive_all(store) == []
    store.command(f"DROP DATABASE {database}")
    store.close()


def test_range_without_slots_reads_spans_only(store: Store) -> None:
    source = red_source(store, WANTED)

    assert source.covered == Covered()
    assert WANTED.rollup.table not in source.sql


@engines.OWN_TABLES
def test_rollup_of_a_replicated_table_is_not_read(store: Store) -> None:
    store.command("RENAME TABLE otel_traces TO otel_traces_local")
    store.command(
        "CREATE TABLE otel_traces AS otel_traces_local "
        "ENGINE = Merge(currentDatabase(), '^otel_traces_local$')"
    )

    assert list(survey(store, CLOSING)) == []
    with pytest.raises(StoreTrouble):
        store.rows("SELECT no_such_column FROM otel_traces")


@engines.EACH_KIND
def test_answers_are_right_while_spans_arrive_and_parts_are_merged(store: Store, spans: list[Span]) -> None:
    rng = random.Random(14)
    has_inserted = threading.Event()

    def insert_more() -> None:
        for number in range(30):
            more = [span_at(rng, 5_000 + number, NOW_S, NOW_S), span_at(rng, 6_000, MIDNIGHT_S, NOW_S - 1)]
            insert(store, more)
        has_inserted.set()

    thread = threading.Thread(target=insert_more)
    thread.start()
    counts, slots = list[int](), list[int]()
    while not has_inserted.is_set() or not counts:
        source = red_source(store, WANTED)
        rows = store.rows(f"SELECT sum(Spans) FROM {source.sql}", source.parameters)  # noqa: S608 - ours
        counts.append(int(rows[0][0]))
        slots.append(len(source.slots))
    thread.join()

    before = sum(FROM_NS <= span["start_ns"] < TO_NS for span in spans)
    assert counts == sorted(counts)
    assert before <= counts[0] <= counts[-1] <= before + 60
    assert min(slots) >= 40
    assert store.rows("SELECT count() FROM otel_traces") == [(len(spans) + 60,)]
