"""Delays between attempts, and the header Retry-After."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime

from receiver.backoff import backoff_s

ATTEMPTS_MAX = 4
"""Maximum number of attempts of a call that only reads."""
DELAY_S = 0.5
"""Upper limit of the first delay; each further one is twice as long."""
DELAY_S_MAX = 30.0
RETRY_AFTER_S_MAX = 60.0
"""Longest wait before a retry. If the server requests a longer one, the call fails at once."""
_SECONDS_DIGITS_MAX = 9


def delays_s(random_share: Callable[[], float] = random.random) -> Iterator[float]:
    """Return the delays before further attempts, without end."""
    # The jitter is the whole delay, so that clients which failed together do not return together.
    return backoff_s(DELAY_S, DELAY_S_MAX, jitter=1.0, random_share=random_share)


def parse_retry_after(text: str | None, now_s: float) -> float | None:
    """Return the seconds of a header Retry-After, `None` if it has neither seconds nor a date."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= _SECONDS_DIGITS_MAX else 10.0**_SECONDS_DIGITS_MAX
    at_s = parse_date(text)
    return None if at_s is None else max(0.0, at_s - now_s)


def parse_date(text: str) -> float | None:
    """Return the date of a header in seconds since 1970, `None` if it is not valid."""
    try:
        instant = parsedate_to_datetime(text)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
