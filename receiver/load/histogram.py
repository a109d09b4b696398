"""Histogram of latencies with a relative error of at most 1/128."""

from __future__ import annotations

from collections import Counter

_SHARP_BITS = 7


class Histogram:
    """Counts of latencies by size."""

    def __init__(self) -> None:
        self.count = 0
        self.max_s = 0.0
        self._counts: Counter[int] = Counter()

    def add(self, latency_s: float) -> None:
        """Add one latency."""
        self.count += 1
        self.max_s = max(self.max_s, latency_s)
        latency_us = int(latency_s * 1e6)
        shift = max(0, latency_us.bit_length() - _SHARP_BITS - 1)
        self._counts[latency_us >> shift << shift] += 1

    def take(self, other: Histogram) -> None:
        """Add all latencies of another histogram."""
        self.count += other.count
        self.max_s = max(self.max_s, other.max_s)
        self._counts += other._counts

    def quantile_s(self, share: float) -> float | None:
        """Return the latency that this share does not exceed; None if empty."""
        if not self.count:
            return None
        wanted, seen = share * self.count, 0
        for latency_us in sorted(self._counts):
            seen += self._counts[latency_us]
            if seen >= wanted:
                return min(latency_us / 1e6, self.max_s)
        return self.max_s
