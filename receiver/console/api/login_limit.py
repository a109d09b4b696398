"""Limit on failed logins: after `FAILURES_MAX` an address must wait, even if it sends a valid token."""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES_MAX = 5
"""Failed logins from an address within `WINDOW_S`, counted from the first of them."""
WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
"""Addresses that are remembered. Above, the address whose window began first is forgotten."""


class LoginLimit:
    """Counts of failed logins."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures: dict[str, tuple[float, int]] = {}
        """Address → when its window began, and its failures since then; in the order of the beginnings."""

    def wait_s(self, address: str) -> float:
        """Return how long this address must wait until its next login; 0 if it need not wait."""
        begin_s, count = self._failures.get(address, (0.0, 0))
        return max(0.0, begin_s + WINDOW_S - self._now()) if count >= FAILURES_MAX else 0.0

    def record_failure(self, address: str) -> None:
        """Count a failed login."""
        now_s = self._now()
        begin_s, count = self._failures.get(address, (now_s, 0))
        if now_s - begin_s >= WINDOW_S:
            del self._failures[address]
            begin_s, count = now_s, 0
        self._failures[address] = begin_s, count + 1
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
