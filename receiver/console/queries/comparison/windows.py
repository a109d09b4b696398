"""Windows of a comparison: parts of both deployments of equal length, which begin with the first span."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypedDict

from receiver.console.queries.comparison.deployments import Seen
from receiver.console.queries.comparison.operation_change import Samples
from receiver.console.queries.comparison.weights import sum_of
from receiver.errors import MalformedBody
from receiver.time_range import instant_text, parse_since

MINUTE_NS = 60 * 10**9


class Window(TypedDict):
    """The part of a deployment that is compared; its end is exclusive."""

    start: str
    end: str
    """Never after now or the end of the time range."""
    is_complete: bool
    """Whether the window is as long as the comparison asks for."""
    spans: int
    errors: int
    estimated_spans: float | None
    estimated_errors: float | None


class Windows(TypedDict):
    """The windows of both deployments, which have the same length once both are complete."""

    a: Window
    b: Window


class Length(NamedTuple):
    """Length of both windows."""

    ns: int
    is_chosen: bool
    """Whether the question names it. Otherwise it follows from the spans, and no window is incomplete."""


def parse_first(query: Mapping[str, str]) -> Length | None:
    """Parse the parameter `first`; `None` if it is omitted."""
    if "first" not in query:
        return None
    try:
        return Length(max(1, parse_since(query["first"])) * 10**9, is_chosen=True)
    except MalformedBody as error:
        raise MalformedBody(
            "first is not a length; expected a number and s, m, h or d, like 30m", field="first"
        ) from error


def common_length(a: Seen, b: Seen) -> Length:
    """Return the time from first to last span of the shorter deployment, rounded up to minutes."""
    shorter_ns = min(a.last_ns - a.first_ns, b.last_ns - b.first_ns)
    # A minute more, because the end is exclusive and must not cut off the last span.
    return Length((shorter_ns // MINUTE_NS + 1) * MINUTE_NS, is_chosen=False)


def window_of(seen: Seen, length: Length, read_to_ns: int, samples: Collection[Samples]) -> Window:
    """Return a window. `read_to_ns`: now or the end of the time range; later spans are not compared yet."""
    end_ns = seen.first_ns + length.ns
    # The clock of a sender may be ahead: a window never ends before its last span.
    past_end_ns = min(end_ns, max(read_to_ns, seen.last_ns + 1))
    weights = sum_of(sample.weights for sample in samples)
    return {
        "start": _time_text(seen.first_ns),
        "end": _time_text(past_end_ns),
        "is_complete": past_end_ns == end_ns or not length.is_chosen,
        "spans": sum(sample.spans for sample in samples),
        "errors": sum(sample.errors for sample in samples),
        "estimated_spans": weights and weights.spans,
        "estimated_errors": weights and weights.errors,
    }


def _time_text(time_ns: int) -> str:
    seconds, nanoseconds = divmod(time_ns, 10**9)
    return instant_text(seconds, zone=f".{nanoseconds:09d}Z")
