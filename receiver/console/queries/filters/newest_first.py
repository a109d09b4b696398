"""Parts of a time range, the newest first, for questions that return the newest matches up to a limit.

Most filters match enough spans in the newest part, so the rest is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from receiver.console.queries.filters.filter import And, Comparison, Filter, Intrinsic, Or

FIRST_DIVISOR = 512
FIRST_S_MIN = 900
FIRST_S_MIN_BY_KEY = 6 * 3_600
"""Shortest first part. With a filter by project or service it is longer, because six hours then cost little
more than a statement."""
GROWTH = 8
"""Each further part is this many times as long as the one before."""


def newest_first(
    tree: Filter, bounds_ns: tuple[int, int], now_s: float, has_found: Callable[[], bool]
) -> Iterator[dict[str, int]]:
    """Yield the ends of adjacent parts of a range, as parameters of a statement.

    `has_found`: whether the first part had a match. A filter without one is rare: the rest is read at once.
    """
    from_ns, to_ns = bounds_ns
    newest_ns = max(from_ns, min(to_ns, int(now_s) * 10**9))
    min_s = FIRST_S_MIN_BY_KEY if _selects_by_key(tree) else FIRST_S_MIN
    part_ns = max((newest_ns - from_ns) // FIRST_DIVISOR, min_s * 10**9)
    # A statement costs more than it saves if the rest is no longer than the part.
    while newest_ns - from_ns >= 2 * part_ns:
        yield {"from_ns": newest_ns - part_ns, "to_ns": to_ns}
        to_ns = newest_ns - part_ns
        if not has_found():
            break
        part_ns *= GROWTH
    yield {"from_ns": from_ns, "to_ns": to_ns}


def _selects_by_key(tree: Filter) -> bool:
    """Return whether the filter selects a small part of the table by the beginning of its sorting key."""
    match tree:
        case Comparison(Intrinsic("project" | "service"), "=", str()):
            return True
        case And(parts):
            return any(map(_selects_by_key, parts))
        case Or(parts):
            return all(map(_selects_by_key, parts))
        case _:
            return False
