"""Mutations of the spans: which days they may have changed, so that the rollups of the others stay proven."""

from __future__ import annotations

import random
import time

import pytest

from receiver.console.queries.rollup.day import Day
from receiver.console.queries.rollup.mutations import MUTATIONS_KEPT, last_change, read_mutations
from receiver.console.queries.rollup.slots import Slot
from receiver.engine.store import Store
from tests.support import engines
from tests.support.random_filters import Span, insert
from tests.support.rollups import DAY_S, HOUR_S, MIDNIGHT_S, assert_equal, derive_all, random_spans


def test_deletion_in_a_day_leaves_the_rollups_of_the_others(store: Store, spans: list[Span]) -> None:
    day, begin_ns, end_ns = MIDNIGHT_S // DAY_S, MIDNIGHT_S * 10**9, (MIDNIGHT_S + DAY_S) * 10**9

    partition = time.strftime("%Y%m%d", time.gmtime(MIDNIGHT_S))
    store.command(
        f"ALTER TABLE otel_traces DELETE IN PARTITION ID '{partition}' "
        "WHERE ServiceName = 'web' SETTINGS mutations_sync = 1"
    )

    left = [
        span for span in spans if span["ServiceName"] != "web" or not begin_ns <= span["start_ns"] < end_ns
    ]
    assert_equal(store, left, slots_min=20)
    assert {hour * HOUR_S // DAY_S for hour in derive_all(store)} == {day}
    assert_equal(store, left, slots_min=40)


def test_spans_that_were_changed_are_derived_again_although_others_of_their_day_are_newer(
    store: Store, spans: list[Span]
) -> None:
    store.command("ALTER TABLE otel_traces UPDATE StatusCode = 'Ok' WHERE 1 SETTINGS mutations_sync = 1")
    later = random_spans(random.Random(7), 60)
    insert(store, later)

    assert_equal(store, [span | {"StatusCode": "Ok"} for span in spans] + later)


def test_engine_keeps_as_many_mutations_as_the_proof_assumes(store: Store) -> None:
    setting = "finished_mutations_to_keep"
    [(kept,)] = store.rows(f"SELECT value FROM system.merge_tree_settings WHERE name = '{setting}'")  # noqa: S608 - ours
    [(table,)] = store.rows("SELECT create_table_query FROM system.tables WHERE name = 'otel_traces' LIMIT 1")

    assert int(kept) == MUTATIONS_KEPT
    assert setting not in table


@engines.OWN_TABLES
def test_mutation_may_have_changed_all_days_unless_it_only_deletes_rows_of_a_day(store: Store) -> None:
    before = len(read_mutations(store))
    for change in (
        "DELETE IN PARTITION ID '20260131' WHERE ServiceName = 'web'",
        "DELETE WHERE ServiceName = ' IN PARTITION ID ''20260131'' WHERE '",
        "UPDATE StatusCode = 'Ok' IN PARTITION ID '20260131' WHERE 1",
        "DELETE IN PARTITION ID '20260131' WHERE 1, DELETE WHERE ServiceName = 'web'",
    ):
        store.command(f"ALTER TABLE otel_traces {change} SETTINGS mutations_sync = 1")

    numbers, days = zip(*read_mutations(store)[before:], strict=True)
    assert days == ("20260131", "", "", "20260131", "")
    assert numbers == (*sorted(set(numbers)), numbers[-1])


@pytest.mark.parametrize(
    ("mutations", "last", "changed_by"),
    [
        pytest.param([], 0, 0, id="no mutation"),
        pytest.param([(5, "")], 5, 5, id="of all days"),
        pytest.param([(3, ""), (5, "20260131")], 5, 5, id="of this day"),
        pytest.param([(3, ""), (5, "20260130"), (6, "20260129")], 6, 3, id="of other days"),
        pytest.param([(5, "20260130")], 5, 0, id="the first is of another day"),
        pytest.param([(5 + n, "20260130") for n in range(100)], 104, 4, id="earlier ones are forgotten"),
        pytest.param([(3, "20260130"), (5, "20260130")], 6, 6, id="the last mutation was cancelled"),
        pytest.param([(3, "20260130"), (5, ""), (5, "20260130")], 5, 5, id="with a change of all days"),
        pytest.param([(3, "20260130"), (5, "20260130"), (7, "")], 5, 0, id="before a later mutation"),
    ],
)
def test_last_change_of_a_day_is(mutations: list[tuple[int, str]], last: int, changed_by: int) -> None:
    assert last_change(mutations, "20260131", last) == changed_by


@pytest.mark.parametrize(
    ("source", "parts", "is_current"),
    [
        pytest.param("table/5", [(1, 1, 7)], True, id="after the change"),
        pytest.param("table/3", [(1, 1, 7)], False, id="before the change"),
        pytest.param("table/3", [(6, 6, 7)], True, id="before it, and all rows were inserted after it"),
        pytest.param("table/3", [(0, 4, 7), (8, 8, 0)], False, id="before it, and rows of block 0 are older"),
        pytest.param("table/5", [(1, 1, 7), (2, 2, 0)], False, id="while a part is not changed yet"),
        pytest.param("table/8", [(1, 1, 7)], False, id="of parts that are gone"),
        pytest.param("another/5", [(1, 1, 7)], False, id="of another table"),
    ],
)
def test_slot_is_used_if_no_row_was_changed_since(
    source: str, parts: list[tuple[int, int, int]], *, is_current: bool
) -> None:
    day = Day(20_484, tables=frozenset({"table"}), parts=[(9, 9, 0), *parts, (10, 10, 0)], changed_by=5)

    assert day.has_source_of(Slot(491_616, 1, 0, source)) == is_current


@pytest.mark.parametrize(
    ("source", "is_current"),
    [("first/0 table/3", True), ("table/3 first/0", False), ("first/0", False), ("first/0 table/4", False)],
)
def test_slot_of_a_cluster_has_the_source_of_each_shard(source: str, *, is_current: bool) -> None:
    day = Day(20_484, shard=2, tables=frozenset({"table"}), parts=[(1, 1, 3)], changed_by=3)

    assert day.has_source_of(Slot(491_616, 1, 0, source)) == is_current
