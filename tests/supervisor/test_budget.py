"""Tests of the failure budget: failed answers of each drain in the past hour, computed from counters."""

from __future__ import annotations

import pytest

from receiver.metrics import Metrics, Snapshot, carried_over
from receiver.settings import Budget
from receiver.supervisor.budget import Answers, FailureBudget
from tests.support.clock import Clock


def snapshots_of(**statuses: int) -> list[Snapshot]:
    """Return the answers of a drain, counted half by each of two processes."""
    halves = Metrics("intake-0"), Metrics("intake-1")
    for status, count in statuses.items():
        for metrics in halves:
            metrics.add("deliveries", count / 2, drain="d", status=status.removeprefix("s"))
    return [metrics.snapshot() for metrics in halves]


def test_failed_answers_and_refused_credentials_are_counted_separately() -> None:
    budget = FailureBudget(Clock())

    answers = budget.past_hour(snapshots_of(s200=6, s400=2, s401=4, s503=2))

    assert answers == {"d": Answers(all=10, failed=4, refused=4, not_2xx=8)}


def test_refused_requests_of_no_drain_and_of_other_methods_are_counted_but_not_as_deliveries() -> None:
    intake, supervisor = Metrics("intake-0"), Metrics("supervisor")
    for drain, status, count in (
        ("", "404", 4),
        ("", "505", 3),
        ("d", "405", 2),
        ("d", "401", 1),
        ("d", "200", 9),
    ):
        intake.add("deliveries", count, drain=drain, status=status)

    FailureBudget(Clock()).report(supervisor, [intake.snapshot()], Budget())

    values = {(series.name, *series.labels): series.value for series in supervisor.snapshot().series}
    assert (values["refused_requests_past_hour", ""], values["refused_requests_past_hour", "d"]) == (7, 3)
    assert values["failed_answers_past_hour", "d"] == 0
    assert ("failed_answers_past_hour", "") not in values


def test_answers_older_than_an_hour_do_not_count() -> None:
    clock = Clock()
    budget = FailureBudget(clock)
    clock.now_s += 60
    budget.mark(snapshots_of(s503=10))
    for _ in range(61):
        clock.now_s += 60
        budget.mark(snapshots_of(s503=10))

    answers = budget.past_hour(snapshots_of(s503=12, s200=2))

    assert answers == {"d": Answers(all=4, failed=2, not_2xx=2)}


def test_failed_ratio_is_relative_to_all_answers() -> None:
    metrics = Metrics("supervisor")

    FailureBudget(Clock()).report(metrics, snapshots_of(s200=2, s503=6), Budget())

    values = {series.name: series.value for series in metrics.snapshot().series}
    assert values["failed_answers_past_hour"] == 6
    assert values["failed_answers_past_hour_ratio"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("failed", "answers_left", "ratio_left"), [(0, 5, 0.5), (2, 3, 0.3), (5, 0, 0.0), (10, 0, 0.0)]
)
def test_remaining_budget_is_reported_and_never_negative(
    failed: int, answers_left: int, ratio_left: float
) -> None:
    clock, metrics = Clock(), Metrics("supervisor")
    budget = FailureBudget(clock)
    clock.now_s += 90

    budget.report(
        metrics,
        snapshots_of(s200=10 - failed, s502=failed, s401=80),
        Budget(failed_answers_max=5, failed_ratio_max=0.5),
    )

    values = {series.name: series.value for series in metrics.snapshot().series}
    assert values["failure_budget_answers_left"] == answers_left
    assert values["failure_budget_ratio_left"] == pytest.approx(ratio_left)
    assert values["refused_credentials_past_hour"] == 80
    assert values["failure_budget_counts_seconds"] == 90


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        pytest.param("302", (1, 1, 0, 1), id="redirect, which no platform follows"),
        pytest.param("closed", (1, 1, 0, 1), id="connection closed before the answer"),
        pytest.param("429", (1, 1, 0, 1), id="retryable error"),
        pytest.param("403", (0, 0, 1, 1), id="wrong credentials"),
        pytest.param("405", (0, 0, 0, 1), id="not a delivery"),
        pytest.param("204", (0, 0, 0, 0), id="OPTIONS"),
    ],
)
def test_status_counts_as_failure_refusal_or_neither(status: str, counts: tuple[int, int, int, int]) -> None:
    assert Answers().plus(status, 1) == Answers(*counts)


def test_failures_of_a_replaced_process_still_count() -> None:
    before = Metrics("intake-0")
    before.add("deliveries", 3, drain="d", status="503")
    carried = carried_over(before.snapshot(), None)
    after = Metrics("intake-0")
    after.add("deliveries", 2, drain="d", status="503")

    assert FailureBudget(Clock()).past_hour([carried, after.snapshot()]) == {
        "d": Answers(all=5, failed=5, not_2xx=5)
    }
