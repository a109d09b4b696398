"""Mutations of the spans: which days they may have changed, so that the rollups of the others stay proven."""

from __future__ import annotations

import time

import pytest

from receiver.console.queries.rollup.proof import last_change, read_mutations
from receiver.engine.store import Store
from tests.support import engines
from tests.support.random_filters import Span
from tests.support.rollups import DAY_S, HOUR_S, MIDNIGHT_S, assert_equal, derive_all


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
    # Hours of the newest day, which is not over, may be due, too.
    assert {hour * HOUR_S // DAY_S for hour in derive_all(store)} - {day + 1} == {day}
    assert_equal(store, left, slots_min=40)


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
        pytest.param([(5, "20260130")], 5, 4, id="earlier mutations are forgotten"),
        pytest.param([(3, "20260130"), (5, "20260130")], 6, 6, id="the last mutation was cancelled"),
        pytest.param([(3, "20260130"), (5, ""), (5, "20260130")], 5, 5, id="with a change of all days"),
        pytest.param([(3, "20260130"), (5, "20260130"), (7, "")], 5, 2, id="before a later mutation"),
    ],
)
def test_last_change_of_a_day_is(mutations: list[tuple[int, str]], last: int, changed_by: int) -> None:
    assert last_change(mutations, "20260131", last) == changed_by
