"""Histogram of latencies with a relative error of at most 1/128."""

from __future__ import annotations

from collections import Counter

_SHARP_BITS = 7


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.max_s = 0.0
        self._counts: Counter[int] = Counter()

    def add(self, latency_s: float) -> None:
        self.count += 1
        self.max_s = max(self.max_s, latency_s)
        latency_us = int(latency_s * 1e6)
        shift = max(0, latency_us.bit_length() - _SHARP_BITS - 1)
        self._counts[latency_us >> shift << shift] += 1

    def quantile_s(self, share: float) -> float | None:
        """Return the quantile for a share from 0 to 1; `None` if empty."""
        if not self.count:
            return None
        target_count, seen_count = share * self.count, 0
        for latency_us in sorted(self._counts):
            seen_count += self._counts[latency_us]
            if seen_count >= target_count:
                return min(latency_us / 1e6, self.max_s)
        return self.max_s
