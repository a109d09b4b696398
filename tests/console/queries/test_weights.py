"""Estimates from sampled spans: their sums, and how certain the error rate is."""

from __future__ import annotations

import random

import pytest

from receiver.console.queries.comparison.statistics import wilson_interval
from receiver.console.queries.comparison.weights import Weights, estimates_of, sum_of
from tests.support.cases import each_case

TRIALS = 2_000
TRUE_RATE = 0.1


def weights_of(sampled: list[tuple[float, bool]]) -> Weights:
    return Weights(
        sum(weight for weight, _ in sampled),
        sum(weight for weight, is_error in sampled if is_error),
        sum(weight**2 for weight, _ in sampled),
    )


def test_equal_weights_are_as_much_evidence_as_the_spans() -> None:
    estimates = estimates_of(weights_of([(4.0, number < 5) for number in range(50)]))

    interval = (estimates["estimated_error_rate_low"], estimates["estimated_error_rate_high"])
    assert interval == pytest.approx(wilson_interval(5, 50))
    assert (estimates["estimated_count"], estimates["estimated_errors"]) == (200, 20)


def test_interval_contains_the_true_rate_as_often_as_promised_with_unequal_weights() -> None:
    rng = random.Random(5)
    hits = weightless_hits = 0
    for _ in range(TRIALS):
        sampled = [(rng.choice([1.0, 2.0, 30.0]), rng.random() < TRUE_RATE) for _ in range(200)]
        weights = weights_of(sampled)
        estimates = estimates_of(weights)
        low, high = estimates["estimated_error_rate_low"], estimates["estimated_error_rate_high"]
        assert low is not None
        assert high is not None
        hits += low <= TRUE_RATE <= high
        narrow_low, narrow_high = wilson_interval(weights.errors / weights.spans * 200, 200)
        weightless_hits += narrow_low <= TRUE_RATE <= narrow_high
    assert hits / TRIALS == pytest.approx(0.95, abs=0.02)
    assert weightless_hits / TRIALS < 0.85


@each_case(("errors", "rate", "low", "high"), [(0, 0, 0, 0.2775), (10, 1, 0.7225, 1)])
def test_interval_ends_at_a_rate_of_0_or_1(errors: int, rate: float, low: float, high: float) -> None:
    estimates = estimates_of(weights_of([(0.1, number < errors) for number in range(10)]))

    assert estimates["estimated_error_rate"] == rate
    assert estimates["estimated_error_rate_low"] == pytest.approx(low, abs=5e-5)
    assert estimates["estimated_error_rate_high"] == pytest.approx(high, abs=5e-5)


def test_no_spans_say_nothing_about_the_rate() -> None:
    assert list(estimates_of(Weights()).values()) == [0, 0, 0, 0, 1]


def test_unknown_weights_make_every_estimate_null() -> None:
    unknown = sum_of([Weights(1, 1, 1), None])

    assert unknown is None
    assert set(estimates_of(unknown).values()) == {None}
    assert sum_of([Weights(1, 0, 1), Weights(4, 4, 16)]) == Weights(5, 4, 17)
