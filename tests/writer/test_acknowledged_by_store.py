"""Drains with `acknowledge = "store"`: a 200 means that the rows are in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver import transcode
from receiver.errors import ReceiverError, StoreTrouble
from receiver.intake.pending import PartlyStored, PendingDelivery, StoreWaiters, delivery_digests
from receiver.journal.writer_notes import STORED, SegmentOutcome, SegmentOutcomes
from receiver.model import Outcome, SegmentId
from tests.support.committer import claim_of
from tests.support.intake import OutcomeDouble
from tests.support.redelivery import EPOCH, POLICY, Harness, delivery
from tests.support.segments import DIGEST_KEY, day_of

SEGMENT = SegmentId(EPOCH, 1)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def outcome_in(harness: Harness) -> SegmentOutcome | None:
    """Return the outcome that an intake would read."""
    return SegmentOutcomes(harness.directory / "outcomes").read(SEGMENT)


def digest_of(number: int) -> str:
    (digest,) = delivery_digests(transcode.commit(POLICY, [delivery(number)], SEGMENT, DIGEST_KEY).record, 1)
    return digest


def answers_after(outcome: SegmentOutcome | None, *digests: str) -> list[Outcome | ReceiverError]:
    """Return the answers to deliveries of four spans each that waited for a segment with this outcome."""
    waiters, answers = StoreWaiters(), list[Outcome | ReceiverError]()
    for number, digest in enumerate(digests):
        pending = PendingDelivery(delivery(number), claim_of(1), answers.append, 0, until_stored=True)
        waiters.join(SEGMENT, pending, OutcomeDouble(received=4, stored=4), digest)
    waiters.settle(SEGMENT, outcome)
    return answers


@pytest.mark.parametrize(
    ("numbers", "poisonous", "rows_max", "dead"),
    [
        pytest.param([1, 2], 0, None, {}, id="stored"),
        pytest.param([1, 2, 3], 2, None, {2: 3}, id="some rows are refused"),
        pytest.param([2], 2, None, {2: 3}, id="all rows are refused"),
        pytest.param([5, 1, 4], 1, 3, {1: 2}, id="rows of a piece are refused"),
    ],
)
def test_outcome_counts_dead_rows_by_delivery(
    harness: Harness, numbers: list[int], poisonous: int, rows_max: int | None, dead: dict[int, int]
) -> None:
    harness.store.rows_max = rows_max
    harness.store.poisonous_days = {day_of(poisonous)}
    harness.add(numbers)

    harness.drain()

    expected = SegmentOutcome({digest_of(number): rows for number, rows in dead.items()})
    assert outcome_in(harness) == (expected if dead else STORED)


def test_outcome_is_incomplete_if_rows_vanished(harness: Harness) -> None:
    harness.store.script = ["ok_without_rows"] * 9
    harness.add([1, 2])

    harness.drain()

    outcome = outcome_in(harness)
    assert outcome is not None
    assert outcome.is_incomplete


def test_only_the_newest_outcomes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.journal.writer_notes.OUTCOMES_MAX", 3)
    outcomes = SegmentOutcomes(tmp_path / "outcomes")
    for seq in range(1, 6):
        outcomes.write(SegmentId(EPOCH, seq), STORED)

    SegmentOutcomes(tmp_path / "outcomes").write(SegmentId(EPOCH, 6), STORED)

    assert [path.name[-1] for path in sorted((tmp_path / "outcomes").iterdir())] == ["4", "5", "6"]


def test_only_the_sender_of_dead_rows_gets_a_partial_success() -> None:
    dead, stored = answers_after(SegmentOutcome({"aa": 3}), "aa", "bb")

    assert isinstance(dead, PartlyStored)
    assert (dead.stored, dead.rejected, dead.is_plain) == (1, 3, False)
    assert dead.message.startswith("3 spans that ClickHouse refuses")
    assert isinstance(stored, OutcomeDouble)


@pytest.mark.parametrize(
    ("outcome", "digest"),
    [
        pytest.param(None, "aa", id="the segment was deleted without an outcome"),
        pytest.param(SegmentOutcome(is_incomplete=True), "aa", id="rows of unknown deliveries are missing"),
        pytest.param(SegmentOutcome({"bb": 1}), "", id="the digest of the delivery is unknown"),
    ],
)
def test_sender_whose_rows_may_not_be_stored_gets_a_retryable_error(
    outcome: SegmentOutcome | None, digest: str
) -> None:
    (answer,) = answers_after(outcome, digest)

    assert isinstance(answer, StoreTrouble)
