"""A drain's failed answers of the past hour, out of counts that only ever grow."""

from __future__ import annotations

import pytest

from receiver.metrics import Metrics, Snapshot, carried_over
from receiver.settings import Budget
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


def test_answers_other_than_2xx_count_and_credentials_apart() -> None:
    budget = FailureBudget(Clock())

    found = budget.past_hour(counted(s200=6, s400=2, s401=4, s503=2))

    assert found == {"d": Answers(all=10, failed=4, refused=4)}


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

    FailureBudget(Clock()).report(metrics, counted(s200=2, s503=6), Budget())

    told = {one.name: one.value for one in metrics.snapshot().series}
    assert told["failed_answers_past_hour"] == 6
    assert told["failed_answers_past_hour_ratio"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("failed", "answers_left", "ratio_left"), [(0, 5, 0.5), (2, 3, 0.3), (5, 0, 0.0), (10, 0, 0.0)]
)
def test_what_is_left_is_told_and_ends_at_nothing(failed: int, answers_left: int, ratio_left: float) -> None:
    clock, metrics = Clock(), Metrics("supervisor")
    budget = FailureBudget(clock)
    clock.now_s += 90

    budget.report(
        metrics,
        counted(s200=10 - failed, s502=failed, s401=80),
        Budget(failed_answers_max=5, failed_ratio_max=0.5),
    )

    told = {one.name: one.value for one in metrics.snapshot().series}
    assert told["failure_budget_answers_left"] == answers_left
    assert told["failure_budget_ratio_left"] == pytest.approx(ratio_left)
    assert told["refused_credentials_past_hour"] == 80
    assert told["failure_budget_counts_seconds"] == 90


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        pytest.param("302", (1, 1, 0), id="no platform follows it"),
        pytest.param("closed", (1, 1, 0), id="the connection ended first"),
        pytest.param("429", (1, 1, 0), id="retried, and failed all the same"),
        pytest.param("403", (0, 0, 1), id="a stranger, perhaps"),
        pytest.param("405", (0, 0, 0), id="no delivery"),
        pytest.param("204", (0, 0, 0), id="OPTIONS"),
    ],
)
def test_what_is_a_failure(status: str, counts: tuple[int, int, int]) -> None:
    assert Answers().plus(status, 1) == Answers(*counts)


def test_a_replaced_process_loses_no_failure() -> None:
    before = Metrics("intake-0")
    before.add("deliveries", 3, drain="d", status="503")
    carried = carried_over(before.snapshot(), None)
    after = Metrics("intake-0")
    after.add("deliveries", 2, drain="d", status="503")

    assert FailureBudget(Clock()).past_hour([carried, after.snapshot()]) == {"d": Answers(5, 5)}


def test_a_request_that_names_no_drain_spends_nobodys_patience() -> None:
    metrics = Metrics("intake-0")
    metrics.add("deliveries", 3, drain="", status="404")

    assert FailureBudget(Clock()).past_hour([metrics.snapshot()]) == {}
