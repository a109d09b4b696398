"""Limits of a query, attached to every statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from receiver.engine.sql_text import BYTES_READ_MAX, MEMORY_BYTES_MAX, ROWS_READ_MAX, SECONDS_MAX
from receiver.engine.store import Parameters, Store
from receiver.errors import LimitExceeded, MalformedBody, StoreTrouble

SPANS_DEFAULT = 100
SPANS_MAX = 1_000_000
"""Maximum number of spans in a response, which is streamed."""
COMPARED_SPANS_MAX = 50_000
"""Maximum number of spans of each of two traces that are compared, which happens in memory."""
COUNTS_MAX = 2_000_000
"""Maximum number of lines of a count query, which is streamed."""
TRACES_DEFAULT = 100
TRACES_MAX = 10_000
"""Maximum number of traces that a search returns, which is streamed."""
NAMES_DEFAULT = 1_000
NAMES_MAX = 100_000
"""Maximum number of lines of a list of services, operations, attributes or values."""
LATENCY_DEFAULT = 10_000
"""Default number of lines of a latency distribution: each has a time and a duration."""
CHART_DEFAULT = 20_000
"""Default number of lines of a chart: each has a group and an interval."""
ARRIVALS_MAX = 5_000
GROUP_MEMORY_BYTES_MAX = 512 << 20
"""Memory for the groups or for the joined rows of a statement; the engine writes more of them to its disk."""

_NARROW = "expected a shorter time range, or a filter by project or service"


def limit_exceeded(trouble: StoreTrouble) -> LimitExceeded | None:
    """Return the query limit that a store error reports, or `None`."""
    match trouble.code:
        case 158:  # TOO_MANY_ROWS
            return LimitExceeded(f"the query reads over {ROWS_READ_MAX} rows; {_NARROW}", field="rows_read")
        case 307:  # TOO_MANY_BYTES
            return LimitExceeded(
                f"the query reads over {BYTES_READ_MAX >> 30} GiB; {_NARROW}", field="bytes_read"
            )
        case 396:  # TOO_MANY_ROWS_OR_BYTES
            return LimitExceeded(f"the answer has more rows than its limit; {_NARROW}", field="rows")
        case 241:  # MEMORY_LIMIT_EXCEEDED
            return LimitExceeded(
                f"the query needs over {MEMORY_BYTES_MAX >> 30} GiB of memory, or the store has less left; "
                f"{_NARROW}",
                field="memory",
            )
        case 159:  # TIMEOUT_EXCEEDED
            return LimitExceeded(f"the query takes over {SECONDS_MAX} s; {_NARROW}", field="seconds")
        case _:
            return None


def decimal_number(text: str, digits_max: int) -> int | None:
    """Return the number that a text of decimal digits is; `None` for any other text or for more digits."""
    # `isdigit` alone accepts characters such as `²`, which `int` refuses. The length bounds the conversion.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits_max else None


def parse_limit(text: str, limit_max: int = SPANS_MAX, name: str = "limit") -> int:
    """Parse a number from 1 to `limit_max`, such as the maximum number of lines. `name`: of the parameter."""
    number = decimal_number(text, len(str(limit_max)))
    if number is None or not 1 <= number <= limit_max:
        raise MalformedBody(f"{name}: expected a whole number from 1 to {limit_max}", field=name)
    return number


def within_time(
    pieces: Iterator[bytes], now: Callable[[], float] = time.monotonic, seconds_max: float = SECONDS_MAX
) -> Iterator[bytes]:
    """Yield the pieces; raise instead of ending once the engine's time limit has passed.

    The embedded engine may end a stream at its time limit without an error, rows missing. Its clock starts
    after ours, so an end before the limit is the end of the rows.
    """
    began_s = now()
    yield from pieces
    if now() - began_s >= seconds_max:
        raise StoreTrouble(
            f"the answer took over {seconds_max} s; rows may be missing", code=159, name="TIMEOUT_EXCEEDED"
        )


def limited_lines(store: Store, statement: str, parameters: Parameters, lines_max: int) -> LimitedLines:
    """Run a statement that has the parameter `limit`."""
    lines = store.lines(statement, {**parameters, "limit": lines_max + 1})
    return LimitedLines(within_time(lines), lines_max)


class LimitedLines:
    """Lines of an answer up to a limit. At the end, `is_cut` is whether more lines match.

    The statement has to return a line more than the limit.
    """

    def __init__(
        self,
        lines: Iterator[bytes],
        lines_max: int,
        suggest: Callable[[], list[str]] = list,
        next_page: Callable[[list[bytes]], str] | None = None,
    ) -> None:
        """`next_page`: called with the lines of each piece; returns the cursor of the page after them."""
        self._lines = lines
        self._lines_max = lines_max
        self._suggest = suggest
        self._next_page = next_page
        self._cursor = ""
        self.is_cut = False
        self.close_keys: list[str] = []
        """Stored attributes whose keys are similar to those of the filter, if no line matches."""

    @property
    def next_cursor(self) -> str:
        """Return the cursor of the next page; empty if there is none."""
        return self._cursor if self.is_cut else ""

    def pieces(self) -> Iterator[bytes]:
        """Yield the lines, in pieces that end with a line."""
        left = self._lines_max
        for piece in self._lines:
            lines = piece.splitlines(keepends=True)
            # The rest of the answer is read in any case: it is at most a line, and the engine ends its
            # statement.
            self.is_cut |= len(lines) > left
            if shown := lines[:left]:
                if self._next_page is not None:
                    self._cursor = self._next_page(shown)
                yield b"".join(shown)
            left = max(0, left - len(lines))
        # Only then, because the suggestions cost a statement.
        if left == self._lines_max:
            self.close_keys = self._suggest()
