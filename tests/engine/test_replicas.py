"""Counts on the replicas of a cluster: a majority has stored rows, and no replica has missing rows."""

from __future__ import annotations

import pytest

from receiver.engine.cluster_store import Answer, agreed_counts
from receiver.errors import StoreTrouble
from receiver.model import SegmentId

DAY = "20260131"
SEGMENT = SegmentId(7, 1)
TWO_SHARDS = [1, 1, 1, 2]
"""Shard 1 has three replicas, shard 2 has one."""


def rows(count: int) -> Answer:
    """Return the answer of a replica with rows of the segment."""
    return {(SEGMENT.epoch, SEGMENT.seq, DAY): count}


def test_rows_of_all_shards_are_listed_by_day_of_the_shard() -> None:
    answers = {1: rows(3), 2: rows(3), 3: rows(3), 4: rows(5)}

    counts = agreed_counts(TWO_SHARDS, answers, {SEGMENT: 8})

    assert counts == [
        (SEGMENT.epoch, SEGMENT.seq, f"1/{DAY}", 3),
        (SEGMENT.epoch, SEGMENT.seq, f"2/{DAY}", 5),
    ]


def test_rows_that_a_majority_has_are_stored_though_a_replica_is_behind() -> None:
    answers: dict[int, Answer] = {1: rows(3), 2: rows(3), 3: {}, 4: {}}

    assert agreed_counts(TWO_SHARDS, answers, {SEGMENT: 3}) == [(SEGMENT.epoch, SEGMENT.seq, f"1/{DAY}", 3)]


def test_rows_that_a_majority_has_are_stored_though_a_replica_is_away() -> None:
    answers: dict[int, Answer] = {1: rows(3), 3: rows(3), 4: {}}

    assert agreed_counts(TWO_SHARDS, answers, {SEGMENT: 3}) == [(SEGMENT.epoch, SEGMENT.seq, f"1/{DAY}", 3)]


UNDECIDED: dict[str, tuple[dict[int, Answer], str]] = {
    "a minority has the rows": (
        {1: rows(3), 2: {}, 3: {}, 4: {}},
        "the replicas of a shard have different rows",
    ),
    "every replica has other rows": (
        {1: rows(3), 2: rows(2), 3: {}, 4: {}},
        "the replicas of a shard have different rows",
    ),
    "most replicas are away": ({1: rows(3), 4: {}}, "1 of 3 replicas of shard 1 answer"),
    "a shard is away": ({1: rows(3), 2: rows(3), 3: rows(3)}, "0 of 1 replicas of shard 2 answer"),
    "nothing is stored, and a replica is away": (
        {1: {}, 2: {}, 4: {}},
        "1 of 4 replicas do not answer, and may have rows of segment",
    ),
    "rows are missing, and a replica is away": (
        {1: rows(2), 2: rows(2), 4: {}},
        "1 of 4 replicas do not answer, and may have rows of segment",
    ),
}


@pytest.mark.parametrize(("answers", "reason"), UNDECIDED.values(), ids=UNDECIDED)
def test_count_is_undecided_if(answers: dict[int, Answer], reason: str) -> None:
    with pytest.raises(StoreTrouble, match=reason):
        agreed_counts(TWO_SHARDS, answers, {SEGMENT: 3})


def test_nothing_is_stored_if_every_replica_says_so() -> None:
    answers: dict[int, Answer] = {1: {}, 2: {}, 3: {}, 4: {}}

    assert agreed_counts(TWO_SHARDS, answers, {SEGMENT: 3}) == []


def test_segment_of_unknown_size_is_undecided_while_a_replica_is_away() -> None:
    answers: dict[int, Answer] = {1: rows(3), 2: rows(3), 4: {}}

    with pytest.raises(StoreTrouble, match="may have rows of segment"):
        agreed_counts(TWO_SHARDS, answers, {SEGMENT: 0})
