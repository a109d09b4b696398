"""Instants and time ranges: parse ages such as `15m` and instants, format instants, compute ranges."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from receiver.errors import MalformedBody

AGE_PATTERN: Final = r"([0-9]{1,9})(s|m|h|d)"
"""An age: a number with a unit."""
SINCE_DEFAULT = "1h"
FUTURE_S = 2 * 3_600
"""How far after now a range without an end reaches. The receiver accepts clocks an hour ahead."""
_AGE = re.compile(AGE_PATTERN)
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE_S_MAX = 200 * 366 * 86_400
"""Older than any time in the table."""
NS_MAX = 2**63 - 1
_RANGE: Final = ".."
"""Between both ends of a range in one text."""


class TimeRange(NamedTuple):
    """When the spans started: between two ages, or between two instants."""

    since_s: int = 3_600
    until_s: int = 0
    from_at_s: float | None = None
    """An instant in place of the age `since_s`."""
    to_at_s: float | None = None
    """An instant in place of the age `until_s`."""

    def bounds_ns(self, now_s: float) -> tuple[int, int]:
        """Return the first nanosecond of the range, and the first after it."""
        from_s, to_s = self._ends_s(now_s)
        return _nanoseconds(from_s), _nanoseconds(to_s)

    def is_empty(self, now_s: float) -> bool:
        from_s, to_s = self._ends_s(now_s)
        return to_s <= from_s

    def _ends_s(self, now_s: float) -> tuple[float, float]:
        now = int(now_s)
        newest_s = now - self.until_s if self.until_s else now + FUTURE_S
        from_s = float(now - self.since_s) if self.from_at_s is None else self.from_at_s
        return from_s, float(newest_s) if self.to_at_s is None else self.to_at_s

    def past_s(self, now_s: float) -> tuple[float, float]:
        """Return the ends of the range in seconds since 1970, without the part after now.

        A range that begins after now is returned whole.
        """
        from_ns, to_ns = self.bounds_ns(now_s)
        begin_s, end_s = from_ns / 1e9, to_ns / 1e9
        # Ages count from a whole second. A range that begins in the current second needs the fraction.
        past_end_s = int(now_s) if begin_s < int(now_s) else now_s
        return begin_s, end_s if past_end_s <= begin_s else min(end_s, past_end_s)

    def parameters(self, now_s: float) -> dict[str, str | int]:
        """Return the range as parameters of a statement; its end is exclusive."""
        from_ns, to_ns = self.bounds_ns(now_s)
        return {"from_ns": from_ns, "to_ns": to_ns}


def ends_of(since: str, until: str) -> tuple[str, str]:
    """Return both ends of a range, which `since` may have, as in `-3h..-1h`. An empty `until` means now.

    An age may have a sign, because other tools write ages as negative times.
    """
    begin, separator, end = since.partition(_RANGE)
    if separator and until:
        raise MalformedBody("until: since has both ends of the range; expected no until", field="until")
    begin, end = (text.strip().removeprefix("-") for text in (begin, end if separator else until))
    return begin, "" if end == "now" else end


def parse_range(since: str, until: str) -> TimeRange:
    """Parse the ends of a range, each an age or an instant: see `ends_of`."""
    since, until = ends_of(since, until)
    from_at_s, to_at_s = parse_instant(since), parse_instant(until)
    parsed = TimeRange(
        parse_since(since) if from_at_s is None else 0,
        parse_since(until, "until") if until and to_at_s is None else 0,
        from_at_s,
        to_at_s,
    )
    # Between the age 0s and now are only spans of clocks that are ahead: ages are compared as they are.
    has_ages = from_at_s is None and to_at_s is None
    if parsed.is_empty(time.time()) or (has_ages and parsed.until_s >= parsed.since_s):
        if until:
            raise MalformedBody("until: expected a later time than since", field="until")
        raise MalformedBody("since: expected a time before now, or also until", field="since")
    return parsed


def parse_instant(text: str) -> float | None:
    """Parse an instant in ISO 8601, UTC unless it has an offset, into seconds; `None` if it is none."""
    try:
        instant = datetime.fromisoformat(text.strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def instant_text(
    at_s: float,
    precision: Literal["minutes", "seconds", "milliseconds"] = "seconds",
    *,
    sep: str = "T",
    zone: str = "+00:00",
) -> str:
    """Format a time in UTC as ISO 8601, such as `2026-01-31T10:00:00+00:00`."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat(sep, precision) + zone


def day_text(partition: str) -> str:
    """Return the text of a day for people: `2026-01-31` for the partition `20260131`."""
    return f"{partition[:4]}-{partition[4:6]}-{partition[6:]}"


def parse_since(text: str, field: Literal["since", "until"] = "since") -> int:
    """Parse an age such as `15m`, `24h`, `7d` or `90s` into seconds."""
    seconds = parse_seconds(text)
    if seconds is None:
        raise MalformedBody(
            f"{field} is neither an age nor an instant; expected a number and s, m, h or d, like 15m, "
            "or an instant, like 2026-01-31T10:00Z",
            field=field,
        )
    return seconds


def parse_seconds(text: str) -> int | None:
    """Parse a number with a unit, such as `15m`, into seconds; `None` if it is not that."""
    match = _AGE.fullmatch(text.strip())
    return min(int(match[1]) * _SECONDS_OF[match[2]], _AGE_S_MAX) if match else None


def _nanoseconds(at_s: float) -> int:
    """Return the nanoseconds of a time within the limits of the table's type."""
    # To the microsecond: more digits of a float are noise, which would move the end of a range.
    return min(max(0, round(at_s * 1e6) * 1_000), NS_MAX)
