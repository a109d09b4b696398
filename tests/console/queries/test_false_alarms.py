"""Simulated comparisons of 50 operations: false alarms are rare, and changes of errors are found."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from receiver.console.queries.comparison.error_levels import ErrorLevels, error_changes
from receiver.console.queries.comparison.operation_change import (
    FALSE_ALARM_SHARE,
    FAMILIES,
    Change,
    Samples,
    changes,
    detectable_error_rate,
)
from receiver.console.queries.comparison.statistics import Histogram, two_sided_p
from receiver.console.queries.comparison.verdict import Facts, Judged, verdict_of
from receiver.console.queries.comparison.weights import ErrorCounts, Weights, error_z
from tests.support.cases import each_case

PAIRS = 1_000
OPERATIONS = 50
SERVICES = 5
FOUND_MIN = 0.95


class Traffic(NamedTuple):
    """Requests of an operation; each is a trace of one span."""

    requests: int
    error_rate: float


class Compared(NamedTuple):
    """A simulated comparison."""

    verdict: str
    levels: ErrorLevels
    changes: list[Change]


def compared(rng: random.Random, a: Sequence[Traffic], b: Sequence[Traffic]) -> Compared:
    """Return the comparison of two random deployments; operation `n` is of service `n % SERVICES`."""
    in_a, in_b = ([samples_of(rng, each) for each in side] for side in (a, b))
    pairs = [*zip(in_a, in_b, strict=True)]
    found = changes(pairs)
    of_services: dict[str | None, tuple[ErrorCounts, ErrorCounts]] = {
        f"s{number}": (sum_of(in_a[number::SERVICES]), sum_of(in_b[number::SERVICES]))
        for number in range(SERVICES)
    }
    levels = ErrorLevels(error_changes({None: (sum_of(in_a), sum_of(in_b))})[0], error_changes(of_services))
    judged = [
        Judged(f"s{number % SERVICES}", f"op{number}", "Server", *pair, change)
        for number, (pair, change) in enumerate(zip(pairs, found, strict=True))
    ]
    ordered = sorted(judged, key=lambda item: item.change.order)
    return Compared(verdict_of(Facts("a", "b", levels, ordered, 0, 0, 0)), levels, found)


def samples_of(rng: random.Random, traffic: Traffic) -> Samples:
    # Random percentiles: no change of durations is too small to be reported.
    percentile = rng.random()
    return Samples(
        traffic.requests,
        binomial(rng, *traffic),
        (percentile, percentile, percentile),
        histogram(rng, traffic.requests),
        None,
    )


def binomial(rng: random.Random, count: int, rate: float) -> int:
    """Return a random number of errors, from the distances between them."""
    errors, position = 0, 0.0
    while (position := position + math.floor(rng.expovariate(-math.log1p(-rate))) + 1) <= count:
        errors += 1
    return errors


def histogram(rng: random.Random, count: int) -> Histogram:
    """Return random durations. Operations with many requests share few histograms, to save time."""
    chosen = random.Random(rng.randrange(300) if count > 50 else rng.random())
    if (key := (count, chosen.random())) not in _HISTOGRAMS:
        _HISTOGRAMS[key] = Counter(chosen.choices(range(8), (5, 20, 30, 20, 10, 8, 5, 2), k=count))
    return _HISTOGRAMS[key]


_HISTOGRAMS: dict[tuple[int, float], Histogram] = {}


def sum_of(samples: Sequence[Samples]) -> ErrorCounts:
    return ErrorCounts(sum(each.spans for each in samples), sum(each.errors for each in samples), None)


def test_at_most_one_percent_of_equal_deployments_differ() -> None:
    rng = random.Random(1)
    alarms = 0
    for number in range(PAIRS):
        error_rate = (0.01, 0.125)[number % 2]
        # From the smallest operation that is judged to a busy one, on each side its own.
        a, b = ([Traffic(rng.choice((10, 30, 200)), error_rate) for _ in range(OPERATIONS)] for _ in "ab")
        alarms += "no measurable change" not in compared(rng, a, b).verdict
    assert alarms / PAIRS <= FALSE_ALARM_SHARE


@each_case(("requests", "error_rate"), [(200, 0.125), (400, 0.07), (3_300, 0.01)])
def test_tripled_error_rate_of_one_operation_is_found(requests: int, error_rate: float) -> None:
    rng = random.Random(2)
    same = [Traffic(requests, error_rate)] * OPERATIONS
    tripled = [*same[:-1], Traffic(requests, 3 * error_rate)]

    found = [compared(rng, same, tripled) for _ in range(PAIRS // 3)]

    assert sum(each.changes[-1].words[0] == "more errors" for each in found) / len(found) >= FOUND_MIN
    assert sum(f"op{OPERATIONS - 1} errors" in each.verdict for each in found) / len(found) >= FOUND_MIN


def test_errors_of_a_service_are_found_that_no_operation_shows() -> None:
    rng = random.Random(3)
    a = [Traffic(12, 0.05)] * OPERATIONS
    b = [Traffic(12, 0.3 if number % SERVICES == 2 else 0.05) for number in range(OPERATIONS)]

    found = [compared(rng, a, b) for _ in range(100)]

    assert sum(each.levels.services[0]["service"] == "s2" for each in found) >= 95
    assert sum("is worse: service s2 traces with errors" in each.verdict for each in found) >= 90


def test_errors_of_the_whole_are_found_that_no_service_shows() -> None:
    rng = random.Random(4)
    a, b = [Traffic(10, 0.02)] * OPERATIONS, [Traffic(10, 0.1)] * OPERATIONS

    found = [compared(rng, a, b) for _ in range(100)]

    assert sum(each.levels.whole["change"] == "more errors" for each in found) >= 95
    assert any("is worse: all services together traces with errors" in each.verdict for each in found)


def test_detectable_error_rate_is_found_as_often_as_promised() -> None:
    rng = random.Random(5)
    for requests, error_rate in ((200, 0.125), (3_000, 0.01), (1_000, 0.0)):
        detected = 0
        for _ in range(PAIRS):
            a = ErrorCounts(requests, round(requests * error_rate))
            rate = detectable_error_rate(a, ErrorCounts(requests), OPERATIONS)
            assert rate is not None
            b = ErrorCounts(requests, binomial(rng, requests, rate), None)
            detected += two_sided_p(error_z(a, b)) * OPERATIONS * FAMILIES <= FALSE_ALARM_SHARE
        assert detected / PAIRS >= FOUND_MIN, (requests, error_rate)


def test_no_error_rate_is_detectable_in_very_few_requests() -> None:
    assert detectable_error_rate(ErrorCounts(10, 5), ErrorCounts(10), OPERATIONS) is None
    assert detectable_error_rate(ErrorCounts(), ErrorCounts(10), 1) is None


def weighted(rng: random.Random, requests: int, rate: float, kept: tuple[float, float]) -> ErrorCounts:
    """Return the kept spans of requests, of which errors and others are sampled at different rates."""
    weights = []
    for _ in range(requests):
        is_error = rng.random() < rate
        if rng.random() < kept[is_error]:
            weights.append((1 / kept[is_error], is_error))
    errors = [weight for weight, is_error in weights if is_error]
    return ErrorCounts(
        len(weights),
        len(errors),
        Weights(
            sum(weight for weight, _ in weights),
            sum(errors),
            sum(weight**2 for weight, _ in weights),
            sum(weight**2 for weight in errors),
        ),
    )


@each_case(
    ("kept_a", "kept_b"), [((0.1, 1.0), (0.5, 1.0)), ((0.1, 0.1), (1.0, 1.0)), ((0.2, 0.5), (0.2, 0.25))]
)
def test_other_sampling_is_no_change_of_errors(
    kept_a: tuple[float, float], kept_b: tuple[float, float]
) -> None:
    rng = random.Random(6)
    p_values = [
        two_sided_p(error_z(weighted(rng, 400, 0.05, kept_a), weighted(rng, 400, 0.05, kept_b)))
        for _ in range(300)
    ]

    assert sum(p_value <= 0.05 for p_value in p_values) / len(p_values) <= 0.08
    assert min(p_values) > FALSE_ALARM_SHARE / FAMILIES / OPERATIONS


def test_errors_are_found_where_every_error_and_few_other_spans_are_kept() -> None:
    rng = random.Random(7)
    found = [
        two_sided_p(error_z(weighted(rng, 2_000, rate, (0.1, 1.0)), weighted(rng, 2_000, 0.05, (0.1, 1.0))))
        for rate in (0.0, 0.01)
        for _ in range(20)
    ]

    assert max(found) < 0.0001
