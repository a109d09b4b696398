"""Whether an operation has changed between two deployments, and how certain that is.

Invariant: an operation with fewer than `SPANS_MIN` spans on a side is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from receiver.query.comparison.statistics import (
    Histogram,
    adjusted,
    proportion_z,
    rank_z,
    tail_z,
    two_sided_p,
)
from receiver.query.comparison.weights import Weights

SPANS_MIN = 10
"""Minimum number of spans of an operation on both sides; the tests are not reliable with fewer."""
FALSE_ALARM_SHARE = 0.01
"""Maximum expected share of false alarms among the reported changes of a comparison."""
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
    """Sampling weights; `None` if that of a span is not known. The tests do not use them."""


class Change(NamedTuple):
    """The change of an operation."""

    words: tuple[str, ...]
    """`slower`, `faster`, `more errors` and `fewer errors`, or else `same` or `too few spans`."""
    p_value: float | None
    """Smallest p-value of the tests, adjusted for the number of tests in the comparison."""
    z: float
    """Evidence: the largest z-score of the reported change, or of all tests."""

    @property
    def is_worse(self) -> bool:
        """Whether the second deployment is worse."""
        return not WORSE_WORDS.isdisjoint(self.words)

    @property
    def order(self) -> tuple[int, float]:
        """Sort key: worse, better, the same, not judged; the most certain first."""
        place = {SAME: 2, TOO_FEW: 3}.get(self.words[0], 1)
        return (0 if self.is_worse else place, -self.z)


def changes(pairs: Sequence[tuple[Samples, Samples]]) -> list[Change]:
    """Return the change of each operation. The tests of all operations are adjusted together."""
    tested = [_z_scores(a, b) if min(a.spans, b.spans) >= SPANS_MIN else () for a, b in pairs]
    # All together: each further test makes a false alarm more likely.
    p_values = iter(adjusted([two_sided_p(z) for scores in tested for z in scores]))
    return [
        _change(a, b, scores, [next(p_values) for _ in scores])
        for (a, b), scores in zip(pairs, tested, strict=True)
    ]


def relative_changes(a: Samples, b: Samples) -> tuple[float | None, float | None, float | None]:
    """Return the changes of p50, p95 and p99: 0.38 means 38 % more. `None`: cannot be computed."""
    if not a.spans or not b.spans:
        return (None, None, None)
    first, second, third = (
        after / before - 1 if before else None
        for before, after in zip(a.percentiles_ms, b.percentiles_ms, strict=True)
    )
    return (first, second, third)


def _z_scores(a: Samples, b: Samples) -> tuple[float, float, float]:
    """Return the z-scores of errors, of all durations and of the longest durations."""
    return (
        proportion_z(a.errors, a.spans, b.errors, b.spans),
        rank_z(a.buckets, b.buckets),
        tail_z(a.buckets, b.buckets, TAIL_QUANTILE),
    )


def _change(a: Samples, b: Samples, scores: Sequence[float], p_values: Sequence[float]) -> Change:
    if not scores:
        return Change((TOO_FEW,), None, 0.0)
    certain = [p_value <= FALSE_ALARM_SHARE for p_value in p_values]
    words: dict[str, float] = {}
    if certain[0]:
        words["more errors" if scores[0] > 0 else "fewer errors"] = abs(scores[0])
    found = [z for z, is_certain in zip(scores[1:], certain[1:], strict=True) if is_certain]
    # The tests may point in both directions; the stronger one decides the word.
    duration_z = max(found, key=abs, default=0.0)
    if duration_z and _is_noticeable(a, b, duration_z):
        words["slower" if duration_z > 0 else "faster"] = abs(duration_z)
    return Change(tuple(words) or (SAME,), min(p_values), max(words.values(), default=max(map(abs, scores))))


def _is_noticeable(a: Samples, b: Samples, z: float) -> bool:
    """Return whether a percentile has changed enough in the direction of the z-score."""
    pairs = zip(a.percentiles_ms, b.percentiles_ms, strict=True)
    if z > 0:
        # The second comparison matters if the percentile was 0: then every value is 5 % more.
        return any(after >= before * (1 + CHANGE_MIN) and after > before for before, after in pairs)
    return any(after <= before * (1 - CHANGE_MIN) and after < before for before, after in pairs)
