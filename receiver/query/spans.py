"""The newest spans that match, by age, project and service. What a client chose is always a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from receiver.errors import MalformedBody
from receiver.query.limits import SETTINGS, SPANS_DEFAULT, SPANS_MAX, within_time
from receiver.storage.store import TABLE, Store

_AGE = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE_S_MAX = 200 * 366 * 86_400
"""Before that no time of the table lies."""


class Wanted(NamedTuple):
    """Which spans."""

    since_s: int = 3_600
    """Started at most so many seconds ago."""
    project: str | None = None
    """ProjectId; `None`: any. Empty is a project: that of spans for which none was found."""
    service: str | None = None
    """ServiceName; `None`: any."""
    limit: int = SPANS_DEFAULT


def spans(store: Store, wanted: Wanted, *, now_s: float) -> Iterator[bytes]:
    """Give the newest matching spans, newest first, one JSON object a line."""
    parameters: dict[str, str | int] = {
        "from_ns": max(0, int(now_s) - wanted.since_s) * 10**9,
        "limit": wanted.limit,
    }
    conditions = ["Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64})"]
    if wanted.project is not None:
        conditions.append("ProjectId = {project:String}")
        parameters["project"] = wanted.project
    if wanted.service is not None:
        conditions.append("ServiceName = {service:String}")
        parameters["service"] = wanted.service
    return within_time(store.lines(_statement(conditions), parameters))


def parse_since(text: str) -> int:
    """Read `15m`, `24h`, `7d`, `90s` as seconds."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise MalformedBody(
            "since is not an age; expected a number and s, m, h or d, like 15m",
            field="since",
        )
    return min(int(found[1]) * _SECONDS_OF[found[2]], _AGE_S_MAX)


def parse_limit(text: str) -> int:
    """Read how many spans are wanted."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SPANS_MAX))) or not (
        1 <= int(text) <= SPANS_MAX
    ):
        raise MalformedBody(f"limit: expected a whole number from 1 to {SPANS_MAX}", field="limit")
    return int(text)


def _statement(conditions: list[str]) -> str:
    """Join conditions out of this file; whatever a client chose is a parameter."""
    return (
        f"SELECT * FROM {TABLE} WHERE {' AND '.join(conditions)} "  # noqa: S608 - constants of this file
        f"ORDER BY Timestamp DESC LIMIT {{limit:UInt64}} {SETTINGS}"
    )
