"""Statistics and estimates of comparisons agree with definitions, computed another way."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest

from receiver.console.queries.comparison.statistics import (
    adjusted,
    proportion_z,
    rank_z,
    tail_z,
    two_sided_p,
    wilson_interval,
)
from receiver.console.queries.comparison.weights import Weights, estimates_of, sum_of
from tests.support.cases import each_case


@each_case(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 1_000, 0.0002, 0.0056)],
)
def test_wilson_interval_has_the_published_values(count: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(count, total) == pytest.approx((low, high), abs=5e-5)


@each_case("total", [11, 60, 137, 1_000, 31_415])
def test_wilson_interval_ends_at_shares_of_0_and_1_exactly(total: int) -> None:
    assert wilson_interval(0, total)[0] == 0
    assert wilson_interval(total, total)[1] == 1


def test_wilson_interval_of_no_spans_is_every_share() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_p_value_has_the_published_values() -> None:
    assert two_sided_p(0) == 1
    assert two_sided_p(-1.96) == pytest.approx(0.05, abs=1e-4)
    assert two_sided_p(3.29) == pytest.approx(0.001, abs=1e-5)


def test_rank_test_agrees_with_pairs_counted_one_by_one() -> None:
    rng = random.Random(2)
    for _ in range(200):
        a = [rng.randrange(6) for _ in range(rng.randint(1, 15))]
        b = [rng.randrange(8) for _ in range(rng.randint(1, 15))]
        wins = sum((y > x) + (y == x) / 2 for x, y in itertools.product(a, b))
        ties = sum(count**3 - count for count in Counter(a + b).values())
        size = len(a) + len(b)
        variance = len(a) * len(b) / 12 * ((size + 1) - ties / (size * (size - 1)))
        excess = wins - len(a) * len(b) / 2
        distance = max(0.0, abs(excess) - 0.5)
        expected = math.copysign(distance / math.sqrt(variance), excess) if variance else 0.0

        assert rank_z(Counter(a), Counter(b)) == pytest.approx(expected)


@each_case("counts", [(0, 0, 1, 2), (0, 10, 0, 10), (10, 10, 10, 10), (1, 10, 1, 10)])
def test_proportion_test_without_a_difference_is_zero(counts: tuple[int, int, int, int]) -> None:
    assert proportion_z(*counts) == 0


@each_case(
    "counts",
    [(0, 5, 3, 4), (1, 12, 7, 9), (3, 10, 0, 14), (2, 1_000, 4, 10), (0, 3_000, 5, 40), (4, 100, 14, 100)],
)
def test_proportion_test_is_exact_for_small_counts(counts: tuple[int, int, int, int]) -> None:
    count_a, total_a, count_b, total_b = counts
    count = count_a + count_b
    ways = {
        in_b: math.comb(total_b, in_b) * math.comb(total_a, count - in_b)
        for in_b in range(min(count, total_b) + 1)
    }
    is_more = count_b * total_a > count_a * total_b
    further = sum(way for in_b, way in ways.items() if (in_b > count_b if is_more else in_b < count_b))
    mid_p = (further + ways[count_b] / 2) / math.comb(total_a + total_b, count)

    z = proportion_z(*counts)

    assert two_sided_p(z) == pytest.approx(2 * mid_p, rel=1e-6)
    assert (z > 0) == is_more
    assert proportion_z(count_b, total_b, count_a, total_a) == -z


def test_proportion_test_orders_changes_that_are_too_certain_for_a_float() -> None:
    assert 30 < proportion_z(0, 2_000, 600, 2_000) < proportion_z(0, 2_000, 1_999, 2_000)
    assert proportion_z(90_000, 10**6, 91_000, 10**6) == pytest.approx(2.46, abs=0.01)


def test_tail_test_finds_a_few_slow_values_that_the_rank_test_misses() -> None:
    a = Counter(dict.fromkeys(range(10), 100))
    b = a - Counter(dict.fromkeys(range(10), 6)) + Counter({50: 60})

    assert abs(rank_z(a, b)) < 3
    assert tail_z(a, b, 0.95) > 5
    assert tail_z(b, a, 0.95) < -5


def test_adjusted_p_values_follow_benjamini_and_hochberg() -> None:
    rng = random.Random(5)
    for _ in range(300):
        size = rng.randrange(6)
        p_values = [rng.choice([0.01, 0.03, 0.04, rng.random()]) for _ in range(size)]
        q = rng.choice([0.035, 0.05, 0.5])
        ordered = sorted(p_values)
        passed = [p for rank, p in enumerate(ordered, 1) if p <= q * rank / size]
        threshold = max(passed, default=-1.0)

        assert [p <= q for p in adjusted(p_values)] == [p <= threshold for p in p_values]


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
