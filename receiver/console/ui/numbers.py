"""Numbers, durations and times as the pages write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from receiver import sizes
from receiver.sizes import duration_text

ID_CHARS_MIN = 8
"""Minimum number of characters of an id on a page."""
percent: Final = sizes.percent


def count(number: float) -> str:
    """Return a count with separators of thousands: `12,400`."""
    return f"{number:,.0f}"


def duration(milliseconds: float | None) -> str:
    """Return a duration: `290 ms`, `1.21 s`, `2.5 min`."""
    return "–" if milliseconds is None else duration_text(milliseconds * 1e6)


def change(ratio: float | None) -> str:
    """Return a relative change with its sign: `+38 %`, `−12 %`."""
    if ratio is None:
        return "–"
    hundredths = round(ratio * 100)
    return f"{hundredths:+,} %".replace("-", "−") if hundredths else "0 %"


def per_minute(number: float, seconds: float) -> str:
    """Return a rate: `1,240/min`. A rate below 1/min is per hour or day: `1.5/h`, `0.2/d`."""
    rate, unit = number * 60 / seconds if seconds else 0.0, "min"
    for factor, longer in ((60, "h"), (24, "d")):
        # Compared after rounding, so that 0.997 an hour is shown as 1/h and not as 24/d.
        if 0 < float(f"{rate:.2g}") < 1:
            rate, unit = rate * factor, longer
    return f"{rate:,.0f}/{unit}" if rate >= 10 or not rate else f"{rate:.2g}/{unit}"  # noqa: PLR2004


def ago(at_s: float, now_s: float) -> str:
    """Return how long before now a time is: `2 s ago`, `3 h ago`, `in 5 min`."""
    seconds = now_s - at_s
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if abs(seconds) >= size:
            text = f"{abs(seconds) // size:.0f} {unit}"
            return f"{text} ago" if seconds > 0 else f"in {text}"
    return "now"


def time_tag(text: str, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """Return a `<time>` element in UTC, which the page's script can show in local time."""
    at = parsed(text).astimezone(UTC)
    label = at.strftime(form) + (f".{at.microsecond // 1000:03}" if "%S" in form and at.microsecond else "")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(at.isoformat(), label, label)


def parsed(text: str) -> datetime:
    """Parse a time of a response, which may have nanoseconds; without an offset it is UTC."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def short_id(text: str) -> str:
    """Return the first characters of a trace id or span id."""
    return text[:ID_CHARS_MIN]


def id_length(ids: Iterable[str]) -> int:
    """Return the smallest number of first characters, at least `ID_CHARS_MIN`, by which these ids differ."""
    distinct = set(ids)
    length, longest = ID_CHARS_MIN, max(map(len, distinct), default=0)
    while length < longest and len({each[:length] for each in distinct}) < len(distinct):
        length += 1
    return length
