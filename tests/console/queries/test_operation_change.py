"""Changes of operations: false alarms are rare, changes are found, and the verdict names the worst."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

from receiver.console.queries.comparison.error_levels import ErrorLevels, error_changes
from receiver.console.queries.comparison.operation_change import (
    FALSE_ALARM_SHARE,
    SPANS_MIN,
    Change,
    Samples,
    changes,
    relative_changes,
)
from receiver.console.queries.comparison.verdict import Facts, Judged, verdict_of
from receiver.console.queries.comparison.weights import ErrorCounts
from tests.support.cases import each_case


def samples_of(durations_ms: Sequence[float], errors: int = 0) -> Samples:
    ordered = sorted(durations_ms)
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * q))] for q in (0.5, 0.95, 0.99))
    return Samples(
        len(ordered), errors, (p50, p95, p99), Counter(round(math.log(value) * 40) for value in ordered)
    )


def random_samples(
    rng: random.Random, count: int, *, scale: float = 1.0, error_share: float = 0.02, slow_share: float = 0.0
) -> Samples:
    durations = [
        rng.lognormvariate(4, 0.6) * (scale if rng.random() >= slow_share else 10) for _ in range(count)
    ]
    return samples_of(durations, sum(rng.random() < error_share for _ in range(count)))


def words_of(a: Samples, b: Samples) -> tuple[str, ...]:
    (change,) = changes([(a, b)])
    return change.words


@each_case(
    ("changed", "words"),
    [
        ({"scale": 1.3}, ("slower",)),
        ({"scale": 0.7}, ("faster",)),
        ({"error_share": 0.15}, ("more errors",)),
        ({"error_share": 0.2, "scale": 1.5}, ("more errors", "slower")),
        ({"slow_share": 0.06}, ("slower",)),
    ],
)
def test_change_is_found(changed: dict[str, float], words: tuple[str, ...]) -> None:
    rng = random.Random(2)

    assert words_of(random_samples(rng, 600), random_samples(rng, 600, **changed)) == words


def test_certain_change_that_is_too_small_to_matter_is_the_same() -> None:
    a = Samples(10**6, 0, (100.0, 200.0, 300.0), {1: 500_000, 2: 500_000})
    b = Samples(10**6, 0, (104.0, 208.0, 312.0), {1: 450_000, 2: 550_000})

    (change,) = changes([(a, b)])

    assert change.words == ("same",)
    assert change.p_value is not None
    assert change.p_value < FALSE_ALARM_SHARE


@each_case(("count", "words"), [(SPANS_MIN - 1, ("too few spans",)), (SPANS_MIN, ("slower",))])
def test_operation_with_few_spans_is_not_judged(count: int, words: tuple[str, ...]) -> None:
    fast, slow = samples_of([10.0 + number for number in range(count)]), samples_of([1_000.0] * 50)

    assert words_of(fast, slow) == words
    assert words_of(slow, fast) == (("faster",) if words == ("slower",) else words)


def test_change_from_zero_cannot_be_computed() -> None:
    a, b = Samples(9, 0, (0.0, 10.0, 20.0)), Samples(9, 0, (1.0, 15.0, 20.0))

    assert relative_changes(a, b) == (None, 0.5, 0.0)
    assert relative_changes(Samples(), b) == (None, None, None)


def test_worse_operations_come_first_then_by_evidence() -> None:
    found = [
        Change(("too few spans",), None, 0.0),
        Change(("same",), 0.5, 1.0),
        Change(("faster",), 0.0, 30.0),
        Change(("slower",), 0.0, 5.0),
        Change(("fewer errors", "slower"), 0.0, 9.0),
    ]

    assert sorted(found, key=lambda change: change.order) == found[::-1]


A, B = Samples(1_000, 5, (50.0, 100.0, 200.0)), Samples(1_200, 60, (55.0, 138.0, 190.0))


SAME_LEVELS = ErrorLevels(error_changes({None: (ErrorCounts(9), ErrorCounts(9))})[0], [])
"""Too few traces on both sides to judge them."""


def facts(
    *words: tuple[str, ...],
    new_errors: int = 0,
    vanished: int = 0,
    appeared: int = 0,
    levels: ErrorLevels = SAME_LEVELS,
) -> Facts:
    operations = [
        Judged("web", f"GET /{number}", "Server", A, B, Change(found, 0.0, 9.0))
        for number, found in enumerate(words)
    ]
    return Facts("dpl_a", "dpl_b", levels, operations, new_errors, vanished, appeared)


def levels_of(errors: int, services: int = 0, in_a: int = 5) -> ErrorLevels:
    """Return levels with these errors in B and in A, of the whole and of this many services."""
    sides = (ErrorCounts(1_000, in_a, None), ErrorCounts(1_000, errors, None))
    names = ["web", "cart"][:services]
    return ErrorLevels(error_changes({None: sides})[0], error_changes(dict.fromkeys(names, sides)))


@each_case(
    ("found", "verdict"),
    [
        (
            facts(("slower",), new_errors=3),
            "dpl_b is worse: web GET /0 p95 +38 % (n = 1,000 and 1,200), 3 new errors",
        ),
        (
            facts(("more errors", "slower"), ("slower",), ("fewer errors",), ("same",)),
            (
                "dpl_b is worse: web GET /0 errors 0.5 % → 5 % and p95 +38 % (n = 1,000 and 1,200), "
                "1 more operation, 1 operation better"
            ),
        ),
        (
            facts(("faster",), vanished=2),
            "dpl_b is better: web GET /0 p99 -5 % (n = 1,000 and 1,200), 2 vanished operations",
        ),
        (
            facts(("same",), ("too few spans",), new_errors=1),
            "dpl_b has 1 new error; no measurable change in 1 operation",
        ),
        (
            facts(("same",), ("same",), appeared=1),
            "dpl_b compared with dpl_a: no measurable change in 2 operations; 1 new operation",
        ),
        (
            facts(("too few spans",)),
            (
                "dpl_b compared with dpl_a: too few spans to compare operations, "
                "which takes 10 of an operation on both sides"
            ),
        ),
        (
            facts(("same",), levels=levels_of(60)),
            "dpl_b is worse: all services together traces with errors 0.5 % → 6 % (n = 1,000 and 1,000)",
        ),
        (
            facts(("slower",), levels=levels_of(60, services=2), new_errors=1),
            (
                "dpl_b is worse: service cart traces with errors 0.5 % → 6 % (n = 1,000 and 1,000), "
                "1 more service, web GET /0 p95 +38 % (n = 1,000 and 1,200), 1 new error"
            ),
        ),
        (
            facts(("more errors",), levels=levels_of(60, services=1)),
            "dpl_b is worse: web GET /0 errors 0.5 % → 5 % (n = 1,000 and 1,200)",
        ),
        (
            facts(("same",), levels=levels_of(5)),
            (
                "dpl_b compared with dpl_a: no measurable change in 1 operation "
                "(a rise of traces with errors from 0.5 % to 3.1 % would have been found)"
            ),
        ),
        (
            facts(("same",), levels=levels_of(5, in_a=60)),
            "dpl_b is better: all services together traces with errors 6 % → 0.5 % (n = 1,000 and 1,000)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verdict_is_a_sentence_with_the_worst_and_finest_level_first(found: Facts, verdict: str) -> None:
    assert verdict_of(found) == verdict
