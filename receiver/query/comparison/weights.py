"""Sampling weights of spans: estimates of the numbers before sampling, with the interval of the error rate.

Invariant: there are no estimates unless every span has a known weight; an unknown weight is not taken for 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from receiver.query.comparison.statistics import wilson_interval


class Weights(NamedTuple):
    """Sums of the weights of spans."""

    spans: float = 0.0
    errors: float = 0.0
    squares: float = 0.0
    """Sum of the squares of the weights of all spans."""

    @property
    def effective_spans(self) -> float:
        """Return Kish's effective sample size: how many spans of equal weight are as much evidence."""
        return self.spans**2 / self.squares if self.squares else 0.0


class Estimates(TypedDict):
    """Numbers before sampling; each is null if the weight of a span is not known."""

    estimated_count: float | None
    estimated_errors: float | None
    estimated_error_rate: float | None
    estimated_error_rate_low: float | None
    estimated_error_rate_high: float | None


def estimates_of(weights: Weights | None) -> Estimates:
    """Return the estimates with the 95 % interval of the error rate."""
    if weights is None:
        return Estimates(
            estimated_count=None,
            estimated_errors=None,
            estimated_error_rate=None,
            estimated_error_rate_low=None,
            estimated_error_rate_high=None,
        )
    # The engine may add the same weights in another order, so the sums differ in their last digit.
    rate = min(1.0, weights.errors / weights.spans) if weights.spans else 0.0
    # Not of all spans: when few of them represent most of the traffic, the rate is less certain.
    low, high = wilson_interval(rate * weights.effective_spans, weights.effective_spans)
    return Estimates(
        estimated_count=weights.spans,
        estimated_errors=weights.errors,
        estimated_error_rate=rate,
        estimated_error_rate_low=low,
        estimated_error_rate_high=high,
    )


def sum_of(parts: Iterable[Weights | None]) -> Weights | None:
    """Return the sums over all parts; `None` if those of a part are not known."""
    total = Weights()
    for part in parts:
        if part is None:
            return None
        total = Weights(*(sum(pair) for pair in zip(total, part, strict=True)))
    return total
