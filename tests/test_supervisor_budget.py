"""A drain's failed answers of the past hour, out of counts that only ever grow."""

from __future__ import annotations

import pytest

from receiver.metrics import Metrics, Snapshot
from receiver.supervisor.budget import Answers, FailureBudget


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def counted(**statuses: int) -> list[Snapshot]:
    """Answers of one drain in two processes: half of each here, half there."""
    halves = Metrics("intake-0"), Metrics("intake-1")
    for status, count in statuses.items():
        for metrics in halves:
            metrics.add("deliveries", count / 2, drain="d", status=status.removeprefix("s"))
    return [metrics.snapshot() for metrics in halves]


def test_answers_other_than_200_count_and_credentials_apart() -> None:
    budget = FailureBudget(Clock())

    found = budget.past_hour(counted(s200=6, s400=2, s401=4, s503=2))

    assert found == {"d": Answers(all=14, failed=8, refused=4)}


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    clock = Clock()
    budget = FailureBudget(clock)
    clock.now_s += 60
    budget.mark(counted(s503=10))
    for _ in range(61):
        clock.now_s += 60
        budget.mark(counted(s503=10))

    found = budget.past_hour(counted(s503=12, s200=2))

    assert found == {"d": Answers(all=4, failed=2)}


def test_the_share_is_of_all_answers() -> None:
    metrics = Metrics("supervisor")

    FailureBudget(Clock()).tell(metrics, counted(s200=2, s503=6))

    told = {one.name: one.value for one in metrics.snapshot().series}
    assert told["failed_answers_past_hour"] == 6
    assert told["failed_answers_past_hour_ratio"] == pytest.approx(0.75)


def test_a_request_that_names_no_drain_spends_nobodys_patience() -> None:
    metrics = Metrics("intake-0")
    metrics.add("deliveries", 3, drain="", status="404")

    assert FailureBudget(Clock()).past_hour([metrics.snapshot()]) == {}
