"""Statistics of a comparison: interval of a share, tests of two samples, control of false alarms.

Every test returns a z-score: positive if the second sample has the higher values. A z-score orders results by
evidence where probabilities are too small for a float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

Histogram = Mapping[int, int]
"""Bucket → count. A higher bucket holds higher values."""

Z_95 = 1.959963984540054
"""z-score of a 95 % interval."""
EXACT_BELOW = 1_000
"""Expected count below which two shares are compared exactly; above, the normal distribution is close."""
POWER_95 = NormalDist().inv_cdf(0.95)
"""z-score by which a change must exceed the threshold of its test, so that the test finds 95 % of them."""


def wilson_interval(count: float, total: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of the share `count / total`; weighted samples have fractions."""
    # Nothing is known about the share of an empty sample.
    if not total:
        return 0.0, 1.0
    # Not the normal interval, which leaves 0 to 1 and has no width at a share of 0.
    share = count / total
    scale = 1 + Z_95**2 / total
    center = share + Z_95**2 / (2 * total)
    width = Z_95 * math.sqrt(share * (1 - share) / total + Z_95**2 / (4 * total**2))
    # The ends at shares of 0 and 1 are exact; rounding would leave a tiny number.
    low = max(0.0, (center - width) / scale) if share > 0 else 0.0
    high = min(1.0, (center + width) / scale) if share < 1 else 1.0
    return low, high


def two_sided_p(z: float) -> float:
    """Return the probability of a z-score at least as far from 0, if nothing has changed."""
    return math.erfc(abs(z) / math.sqrt(2))


def proportion_z(count_a: int, total_a: int, count_b: int, total_b: int) -> float:
    """Compare two shares: Fisher's exact test with mid-p, or for large counts its normal approximation."""
    if not total_a or not total_b or count_a * total_b == count_b * total_a:
        return 0.0
    pooled = (count_a + count_b) / (total_a + total_b)
    smallest_expected = min(pooled, 1 - pooled) * min(total_a, total_b)
    if smallest_expected < EXACT_BELOW:
        # The approximation is wrong for small counts: with 10 and 1,000 spans, by a factor of up to 10^6.
        p_value = 2 * _upper_mid_p(count_a, total_a, count_b, total_b)
        # Below, the probability is too small for a float; the approximation orders such results.
        if p_value > 1e-300:  # noqa: PLR2004
            z = -NormalDist().inv_cdf(min(p_value, 1.0) / 2)
            return math.copysign(z, count_b * total_a - count_a * total_b)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / total_a + 1 / total_b))
    difference = count_b / total_b - count_a / total_a
    correction = (1 / total_a + 1 / total_b) / 2
    return math.copysign(max(0.0, abs(difference) - correction), difference) / spread


def _upper_mid_p(count_a: int, total_a: int, count_b: int, total_b: int) -> float:
    """Return the probability of a difference larger than this one, plus half of that of this one.

    The division of a fixed total count is hypergeometric. Lancaster's mid-p, because Fisher's own p-value is
    too large for small counts: it includes the whole probability of the observed counts.
    """
    if count_b * total_a < count_a * total_b:
        count_a, total_a, count_b, total_b = count_b, total_b, count_a, total_a
    count = count_a + count_b
    term = math.exp(
        _log_binomial(total_a, count_a)
        + _log_binomial(total_b, count_b)
        - _log_binomial(total_a + total_b, count)
    )
    p_value = term / 2
    for in_b in range(count_b, min(count, total_b)):
        # The ratio of neighbouring hypergeometric probabilities.
        term *= (count - in_b) * (total_b - in_b) / ((in_b + 1) * (total_a - count + in_b + 1))
        p_value += term
        if term <= p_value * 1e-12:
            break
    return p_value


def _log_binomial(total: int, count: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)


def detectable_share(count_a: int, total_a: int, total_b: int, p_max: float) -> float | None:
    """Return the share of B that a test at `p_max` finds in 95 % of cases; `None` if B is too small for any.

    Cohen's effect size: arcsines of the roots of shares have the same variance everywhere, with Anscombe's
    correction for small counts.
    """
    if not total_a or not total_b:
        return None
    share_a = (count_a + 0.375) / (total_a + 0.75)
    effect = (POWER_95 - NormalDist().inv_cdf(p_max / 2)) * math.sqrt(1 / total_a + 1 / total_b)
    angle = 2 * math.asin(math.sqrt(share_a)) + effect
    return math.sin(angle / 2) ** 2 if angle < math.pi else None


def rank_z(a: Histogram, b: Histogram) -> float:
    """Compare two samples: Mann-Whitney test with corrections for ties and for continuity.

    Values in the same bucket are ties.
    """
    total_a, total_b = sum(a.values()), sum(b.values())
    total = total_a + total_b
    if not total_a or not total_b:
        return 0.0
    below_a, wins, ties = 0, 0.0, 0
    for bucket in sorted({*a, *b}):
        here_a, here_b = a.get(bucket, 0), b.get(bucket, 0)
        # The usual formula sorts all values; with a histogram, each bucket counts as a whole.
        wins += here_b * (below_a + here_a / 2)
        ties += (here_a + here_b) ** 3 - (here_a + here_b)
        below_a += here_a
    variance = total_a * total_b / 12 * (total + 1 - ties / (total * (total - 1)))
    excess = wins - total_a * total_b / 2
    if variance <= 0 or abs(excess) <= 0.5:  # noqa: PLR2004 - the continuity correction
        return 0.0
    return math.copysign(abs(excess) - 0.5, excess) / math.sqrt(variance)


def tail_z(a: Histogram, b: Histogram, quantile: float) -> float:
    """Compare the shares of both samples above a quantile of all values.

    Finds a change of few slow values, which hardly moves the ranks.
    """
    total_a, total_b = sum(a.values()), sum(b.values())
    below_a = below_b = 0
    for bucket in sorted({*a, *b}):
        below_a += a.get(bucket, 0)
        below_b += b.get(bucket, 0)
        if below_a + below_b >= quantile * (total_a + total_b):
            break
    return proportion_z(total_a - below_a, total_a, total_b - below_b, total_b)


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Benjamini and Hochberg, in the same order.

    Reporting those up to `q` makes an expected share of at most `q` of the reports false alarms.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place], reverse=True)
    results = [1.0] * len(p_values)
    least = 1.0
    for rank, place in zip(range(len(p_values), 0, -1), order, strict=True):
        # From the largest p-value down, because an adjusted value never exceeds that of a larger one.
        least = min(least, p_values[place] * len(p_values) / rank)
        results[place] = least
    return results
