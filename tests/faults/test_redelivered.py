"""Whether a delivery is new is asked of a store that refuses to answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from receiver.engine.store import DayRows, Held
from receiver.errors import StoreTrouble
from receiver.model import SegmentId
from tests.support.redelivery import Harness

REFUSALS = 3


@pytest.mark.fault("the right to read the table is gone when a duplicate is to be left out after a restart")
def test_a_refused_question_about_a_duplicate_calls_a_human_and_is_asked_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.add([1], [1])
    refuse_to_count(harness)

    harness.drain()

    assert harness.is_exact
    assert harness.progress.alarms == REFUSALS


@pytest.mark.fault("the right to read the table is gone after a restart of which the window knows nothing")
def test_while_the_question_is_refused_nothing_is_left_out(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1], [1])
    harness.store.insert(file.path, token=f"{file.id}#0", query_id="q")
    refuse_to_count(harness)

    harness.drain()

    assert harness.copies == {1: 2.0}
    assert not harness.letters


def refuse_to_count(harness: Harness) -> None:
    """At first."""
    count, refusals = harness.store.counts, [StoreTrouble("no right", code=497)] * REFUSALS

    def counts(held: Sequence[Held]) -> dict[SegmentId, DayRows]:
        if refusals:
            raise refusals.pop()
        return count(held)

    harness.store.counts = counts  # type: ignore[method-assign]  # it refuses at first
