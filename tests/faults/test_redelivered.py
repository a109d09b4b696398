"""The store refuses to answer whether a delivery was already stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from receiver.engine.store import DayRows, RowLocation
from receiver.errors import StoreTrouble
from receiver.model import SegmentId
from tests.support.redelivery import Harness

REFUSALS = 3


@pytest.mark.fault(
    "the permission to read the table is missing when a duplicate is to be skipped after a restart"
)
def test_refused_query_about_a_duplicate_raises_the_alarm_and_is_repeated(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.add([1], [1])
    refuse_to_count(harness)

    harness.drain()

    assert harness.is_exact
    assert harness.progress.alarms == REFUSALS


@pytest.mark.fault(
    "the permission to read the table is missing after a restart without a deduplication window"
)
def test_no_delivery_is_skipped_while_the_query_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1], [1])
    harness.store.insert(file.path, token=f"{file.id}#0", query_id="q")
    refuse_to_count(harness)

    harness.drain()

    assert harness.copies == {1: 2.0}
    assert not harness.dead_letters


def refuse_to_count(harness: Harness) -> None:
    """Make the first counts fail."""
    count, refusals = harness.store.counts, [StoreTrouble("no right", code=497)] * REFUSALS

    def counts(locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        if refusals:
            raise refusals.pop()
        return count(locations)

    harness.store.counts = counts  # type: ignore[method-assign]  # refuses the first counts
