"""Sampling weights of spans: estimates of the numbers before sampling, with the interval of the error rate.

Invariant: there are no estimates unless every span has a known weight; an unknown weight is not taken for 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from receiver.console.queries.comparison.statistics import proportion_z, wilson_interval


class Weights(NamedTuple):
    """Sums of the weights of spans."""

    spans: float = 0.0
    errors: float = 0.0
    squares: float = 0.0
    """Sum of the squares of the weights of all spans."""
    error_squares: float = 0.0

    @property
    def effective_spans(self) -> float:
        """Return Kish's effective sample size: how many spans of equal weight are as much evidence."""
        return self.spans**2 / self.squares if self.squares else 0.0


class ErrorCounts(NamedTuple):
    """How many of the spans or traces of a deployment have an error."""

    total: int = 0
    errors: int = 0
    weights: Weights | None = Weights()

    @property
    def rate(self) -> float:
        """Return the share with an error."""
        return self.errors / self.total if self.total else 0.0


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


def error_z(a: ErrorCounts, b: ErrorCounts) -> float:
    """Compare two error rates; if all weights are known, those before sampling.

    Rao and Scott (1992): counts of a weighted sample, divided by its design effect, are compared like counts.
    """
    if not (a.weights and b.weights and a.weights.spans and b.weights.spans):
        return proportion_z(a.errors, a.total, b.errors, b.total)
    pooled = _design_effect(Weights(*map(sum, zip(a.weights, b.weights, strict=True))))
    effects = _design_effect(a.weights), _design_effect(b.weights)
    # A sample without errors is assumed to weight them like the other sample, relative to its other spans.
    a_effect = max(pooled, effects[0] or effects[1] * _mean(a.weights) / _mean(b.weights))
    b_effect = max(pooled, effects[1] or effects[0] * _mean(b.weights) / _mean(a.weights))
    return proportion_z(*_effective(a.weights, a_effect), *_effective(b.weights, b_effect))


def _effective(weights: Weights, effect: float) -> tuple[int, int]:
    """Return the errors and spans of an unweighted sample that is as much evidence."""
    if not effect:
        return 0, 0
    errors = round(weights.errors / effect)
    return errors, errors + round((weights.spans - weights.errors) / effect)


def _design_effect(weights: Weights) -> float:
    """Return the variance of the error rate, relative to that of a sample in which each weight is 1.

    It is 0 if there are no errors or only errors.
    """
    errors, others = weights.errors, weights.spans - weights.errors
    # Sums of fractions differ from 0 in their last digits.
    if min(errors, others) <= weights.spans * 1e-9:
        return 0.0
    # The rarer kind decides.
    return (
        weights.error_squares / errors * others + (weights.squares - weights.error_squares) / others * errors
    ) / weights.spans


def _mean(weights: Weights) -> float:
    """Return the mean weight of the spans without an error, or 1."""
    others = weights.spans - weights.errors
    return (weights.squares - weights.error_squares) / others if others > weights.spans * 1e-9 else 1.0


def sum_of(parts: Iterable[Weights | None]) -> Weights | None:
    """Return the sums over all parts; `None` if a part has unknown weights."""
    total = Weights()
    for part in parts:
        if part is None:
            return None
        total = Weights(*(sum(pair) for pair in zip(total, part, strict=True)))
    return total
