"""Deletion of expired days: predictable, and the answers of rollups equal the spans before and afterwards."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

from receiver.console.queries.rollup.derivation import derive_due
from receiver.engine.expiry import Expiry
from receiver.engine.store import Store
from tests.support.random_filters import NOW_S, insert
from tests.support.rollups import CLOSING, DAY_S, HOUR_S, assert_equal, derive_all, random_spans
from tests.test_clock import Machine


def days_of(store: Store) -> list[str]:
    return [
        str(day)
        for (day,) in store.rows("SELECT DISTINCT toDate(Timestamp, 'UTC') FROM otel_traces ORDER BY 1")
    ]


def test_answers_equal_the_spans_before_during_and_after_the_first_rollup_and_after_expiry(
    store: Store, tmp_path: Path
) -> None:
    spans = random_spans(random.Random(60))
    insert(store, spans)
    assert_equal(store, spans)

    hours = next(derive_due(store, CLOSING))
    assert_equal(store, spans, slots_min=len(hours) // 2)
    derive_all(store)
    assert_equal(store, spans, slots_min=40)

    oldest, *kept = days_of(store)
    # The last day that `random_spans` fills began up to three days ago, so only the oldest has expired.
    end_s = int(datetime.fromisoformat(oldest).replace(tzinfo=UTC).timestamp()) + DAY_S
    Expiry(store, Machine().clock(tmp_path), 2, now_s=lambda: end_s + 2 * DAY_S - 1).drop_expired_days()
    assert days_of(store) == [oldest, *kept]
    Expiry(store, Machine().clock(tmp_path), 2, now_s=lambda: end_s + 2 * DAY_S).drop_expired_days()

    left = [span for span in spans if span["start_ns"] >= end_s * 10**9]
    assert days_of(store) == kept
    assert_equal(store, left)
    derive_all(store)
    assert_equal(store, left)


def test_no_day_is_dropped_while_the_clock_is_not_trusted_or_without_a_retention(
    store: Store, tmp_path: Path
) -> None:
    insert(store, random_spans(random.Random(61), 20))
    before = days_of(store)
    machine = Machine()
    expiry = Expiry(store, machine.clock(tmp_path), 1, now_s=lambda: NOW_S + 100 * DAY_S)
    machine.wall_s += HOUR_S
    expiry.check()

    expiry.drop_expired_days()
    Expiry(store, Machine().clock(tmp_path / "x"), 0, now_s=lambda: NOW_S + 100 * DAY_S).drop_expired_days()

    assert expiry.warning
    assert days_of(store) == before
