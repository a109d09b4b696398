"""Ranges of spans that a statement reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from receiver.console.queries.rollup.tables import HOUR_NS
from receiver.engine.sql_text import Sql, compose, identifier, joined, started_between

Values = dict[str, str | int | Sequence[int] | Sequence[str]]
"""Parameters of a statement that is being built."""


class Range(NamedTuple):
    """Spans that started in a range of time, its end exclusive."""

    from_ns: int
    to_ns: int
    received_after_ms: int | None = None
    """Only spans received after this; `None`: all."""


def condition(ranges: Sequence[Range], values: Values, name: str = "range") -> Sql:
    """Return the condition for spans of any of these ranges, and add its parameters, named `name…`."""
    alternatives = []
    for place, spans in enumerate(ranges):
        values |= {f"{name}_from{place}": spans.from_ns, f"{name}_to{place}": spans.to_ns}
        text = started_between(f"{name}_from{place}", f"{name}_to{place}")
        if spans.received_after_ms is not None:
            values[f"{name}_after{place}"] = spans.received_after_ms
            after = "{text} AND ReceivedAt > fromUnixTimestamp64Milli({{name}_after{place}:Int64}, 'UTC')"
            text = compose(after, text=text, name=identifier(name), place=place)
        alternatives.append(compose("({text})", text=text))
    # No range means no span; an empty condition would select all.
    return compose("({any})", any=joined(" OR ", alternatives) or 0)


def uncovered(hours: Iterable[int], from_ns: int, to_ns: int) -> list[Range]:
    """Return the parts of a range of time that are in none of these hours."""
    ranges, at_ns = [], from_ns
    for first, end in runs(sorted(hours)):
        if at_ns < first * HOUR_NS:
            ranges.append(Range(at_ns, first * HOUR_NS))
        at_ns = end * HOUR_NS
    if at_ns < to_ns:
        ranges.append(Range(at_ns, to_ns))
    return ranges


def runs(hours: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges that ascending hours consist of, each with an exclusive end."""
    found: list[tuple[int, int]] = []
    for hour in hours:
        if found and found[-1][1] == hour:
            found[-1] = (found[-1][0], hour + 1)
        else:
            found.append((hour, hour + 1))
    return found
