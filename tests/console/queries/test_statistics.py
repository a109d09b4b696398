"""The statistics of comparisons agree with definitions, computed another way."""

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


def test_wilson_interval_contains_the_true_share_as_often_as_promised() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(2_000):
        low, high = wilson_interval(sum(rng.random() < 0.1 for _ in range(60)), 60)
        hits += low <= 0.1 <= high
    assert hits / 2_000 == pytest.approx(0.95, abs=0.02)


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


def test_rank_test_agrees_with_random_permutations() -> None:
    rng = random.Random(3)
    a = [rng.gauss(100, 10) for _ in range(25)]
    b = [rng.gauss(106, 10) for _ in range(25)]

    def difference(values: list[float]) -> float:
        ranks = {value: rank for rank, value in enumerate(sorted(values))}
        return abs(sum(ranks[value] for value in values[25:]) - sum(range(50)) / 2)

    extreme = sum(difference(rng.sample(a + b, 50)) >= difference(a + b) for _ in range(4_000))

    ranks = {value: rank for rank, value in enumerate(sorted(a + b))}
    z = rank_z(Counter(ranks[value] for value in a), Counter(ranks[value] for value in b))
    assert two_sided_p(z) == pytest.approx(extreme / 4_000, abs=0.01)


def test_proportion_test_agrees_with_random_permutations() -> None:
    rng = random.Random(4)
    outcomes = [1] * 4 + [0] * 96 + [1] * 14 + [0] * 86
    extreme = 0.0
    for _ in range(4_000):
        drawn = sum(rng.sample(outcomes, 100))
        # An equal difference counts half: mid-p.
        extreme += (abs(18 - 2 * drawn) > 10) + (abs(18 - 2 * drawn) == 10) / 2

    z = proportion_z(4, 100, 14, 100)

    assert z > 0
    assert two_sided_p(z) == pytest.approx(extreme / 4_000, abs=0.01)
    assert proportion_z(14, 100, 4, 100) == -z


@each_case("counts", [(0, 0, 1, 2), (0, 10, 0, 10), (10, 10, 10, 10), (1, 10, 1, 10)])
def test_proportion_test_without_a_difference_is_zero(counts: tuple[int, int, int, int]) -> None:
    assert proportion_z(*counts) == 0


@each_case("counts", [(0, 5, 3, 4), (1, 12, 7, 9), (3, 10, 0, 14), (2, 1_000, 4, 10), (0, 3_000, 5, 40)])
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
