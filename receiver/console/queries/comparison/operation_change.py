"""Whether an operation has changed between two deployments, and how certain that is.

Invariant: an operation with fewer than `SPANS_MIN` spans on a side is not judged.
Tests of errors and tests of durations are families of their own, so that neither hides changes of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from receiver.console.queries.comparison.statistics import (
    Histogram,
    adjusted,
    detectable_share,
    rank_z,
    tail_z,
    two_sided_p,
)
from receiver.console.queries.comparison.weights import ErrorCounts, Weights, error_z

SPANS_MIN = 10
"""Minimum number of spans of an operation on both sides; the tests are not reliable with fewer."""
FALSE_ALARM_SHARE = 0.01
"""Maximum share of comparisons with a reported change, if nothing has changed."""
FAMILIES = 4
"""Families of tests that share `FALSE_ALARM_SHARE`: errors of the whole, services, operations; durations."""
CHANGE_MIN = 0.05
"""Minimum change of a percentile: with many spans the tests find changes that do not matter."""
TAIL_QUANTILE = 0.95
"""A separate test compares the shares of spans above this quantile of both sides."""

TOO_FEW: Final = "too few spans"
SAME: Final = "same"
WORSE_WORDS: Final = frozenset({"more errors", "slower"})


class Samples(NamedTuple):
    """The spans of an operation in a window."""

    spans: int = 0
    errors: int = 0
    percentiles_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """p50, p95 and p99; without meaning if there are no spans."""
    buckets: Histogram = MappingProxyType({})
    """Histogram of the durations."""
    weights: Weights | None = Weights()
    """Sampling weights; `None` if a span has no known weight. The tests of durations do not use them."""

    @property
    def error_counts(self) -> ErrorCounts:
        """Return what the test of errors compares."""
        return ErrorCounts(self.spans, self.errors, self.weights)


class Change(NamedTuple):
    """The change of an operation."""

    words: tuple[str, ...]
    """`slower`, `faster`, `more errors` and `fewer errors`, or else `same` or `too few spans`."""
    p_value: float | None
    """Smallest p-value of the tests, adjusted for the tests of their families and for the families."""
    z: float
    """Evidence: the largest z-score of the reported change, or of all tests."""
    detectable_error_rate: float | None = None
    """Error rate of the second deployment that would have been reported in 95 % of cases."""

    @property
    def is_worse(self) -> bool:
        """Whether the second deployment is worse."""
        return not WORSE_WORDS.isdisjoint(self.words)

    @property
    def order(self) -> tuple[int, float]:
        """Sort key: worse, better, the same, not judged; the most certain first."""
        place = {SAME: 2, TOO_FEW: 3}.get(self.words[0], 1)
        return (0 if self.is_worse else place, -self.z)


def family_p_values(scores: Iterable[float]) -> list[float]:
    """Return the p-values of a family of tests, adjusted for its tests and for the other families."""
    return [min(1.0, FAMILIES * p_value) for p_value in adjusted([two_sided_p(z) for z in scores])]


def changes(pairs: Sequence[tuple[Samples, Samples]]) -> list[Change]:
    """Return the change of each operation."""
    judged = [(a, b) for a, b in pairs if min(a.spans, b.spans) >= SPANS_MIN]
    error_scores = [error_z(a.error_counts, b.error_counts) for a, b in judged]
    duration_scores = [score for a, b in judged for score in _duration_scores(a, b)]
    errors = zip(error_scores, family_p_values(error_scores), strict=True)
    durations = zip(duration_scores, family_p_values(duration_scores), strict=True)
    return [
        _change(a, b, [next(errors), next(durations), next(durations)], len(judged))
        if min(a.spans, b.spans) >= SPANS_MIN
        else Change((TOO_FEW,), None, 0.0)
        for a, b in pairs
    ]


def detectable_error_rate(a: ErrorCounts, b: ErrorCounts, tests: int) -> float | None:
    """Return the error rate of `b` that would be reported in 95 % of cases. `tests`: size of the family."""
    return detectable_share(a.errors, a.total, b.total, FALSE_ALARM_SHARE / FAMILIES / tests)


def relative_changes(a: Samples, b: Samples) -> tuple[float | None, float | None, float | None]:
    """Return the changes of p50, p95 and p99: 0.38 means 38 % more. `None`: cannot be computed."""
    if not a.spans or not b.spans:
        return (None, None, None)
    first, second, third = (
        after / before - 1 if before else None
        for before, after in zip(a.percentiles_ms, b.percentiles_ms, strict=True)
    )
    return (first, second, third)


def _duration_scores(a: Samples, b: Samples) -> tuple[float, float]:
    """Return the z-scores of all durations and of the longest durations."""
    return rank_z(a.buckets, b.buckets), tail_z(a.buckets, b.buckets, TAIL_QUANTILE)


def _change(a: Samples, b: Samples, tests: Sequence[tuple[float, float]], operations: int) -> Change:
    """Return the change that the tests show: z-score and p-value of errors, then of durations."""
    (errors_z, errors_p), *durations = tests
    words: dict[str, float] = {}
    if errors_p <= FALSE_ALARM_SHARE:
        words["more errors" if errors_z > 0 else "fewer errors"] = abs(errors_z)
    certain = [z for z, p_value in durations if p_value <= FALSE_ALARM_SHARE]
    # The tests may point in both directions; the stronger one decides the word.
    duration_z = max(certain, key=abs, default=0.0)
    if duration_z and _is_noticeable(a, b, duration_z):
        words["slower" if duration_z > 0 else "faster"] = abs(duration_z)
    return Change(
        tuple(words) or (SAME,),
        min(p_value for _, p_value in tests),
        max(words.values(), default=max(abs(z) for z, _ in tests)),
        detectable_error_rate(a.error_counts, b.error_counts, operations),
    )


def _is_noticeable(a: Samples, b: Samples, z: float) -> bool:
    """Return whether a percentile has changed enough in the direction of the z-score."""
    pairs = zip(a.percentiles_ms, b.percentiles_ms, strict=True)
    if z > 0:
        # The second comparison matters if the percentile was 0: then every value is 5 % more.
        return any(after >= before * (1 + CHANGE_MIN) and after > before for before, after in pairs)
    return any(after <= before * (1 - CHANGE_MIN) and after < before for before, after in pairs)
