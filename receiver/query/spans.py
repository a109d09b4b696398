"""Span query: the newest spans by age, project and service. Client input is always passed as a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from receiver.engine.store import TABLE, Store
from receiver.errors import MalformedBody
from receiver.query.limits import SETTINGS, SPANS_DEFAULT, SPANS_MAX, within_time

_AGE = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE_S_MAX = 200 * 366 * 86_400
"""Older than any time in the table."""


class SpanFilter(NamedTuple):
    """Filter of a span query."""

    since_s: int = 3_600
    """Maximum age of the span start in seconds."""
    project: str | None = None
    """ProjectId; `None`: any. The empty string selects spans without a project."""
    service: str | None = None
    """ServiceName; `None`: any."""
    limit: int = SPANS_DEFAULT


def spans(store: Store, wanted: SpanFilter, *, now_s: float) -> Iterator[bytes]:
    """Return the newest matching spans, newest first, one JSON object a line."""
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
    """Parse an age such as `15m`, `24h`, `7d` or `90s` into seconds."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise MalformedBody(
            "since is not an age; expected a number and s, m, h or d, like 15m",
            field="since",
        )
    return min(int(match[1]) * _SECONDS_OF[match[2]], _AGE_S_MAX)


def parse_limit(text: str) -> int:
    """Parse the maximum number of spans."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SPANS_MAX))) or not (
        1 <= int(text) <= SPANS_MAX
    ):
        raise MalformedBody(f"limit: expected a whole number from 1 to {SPANS_MAX}", field="limit")
    return int(text)


def _statement(conditions: list[str]) -> str:
    """Build the statement from constant conditions; client input is passed as parameters."""
    return (
        f"SELECT * FROM {TABLE} WHERE {' AND '.join(conditions)} "  # noqa: S608 - constants of this file
        f"ORDER BY Timestamp DESC LIMIT {{limit:UInt64}} {SETTINGS}"
    )
