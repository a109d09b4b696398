"""Format of a streamed response: one JSON object per line, then a line with their count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from receiver.query.limits import LimitedLines

JSON_LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
"""Content type of an answer that has its own end mark."""


class StreamedAnswer(NamedTuple):
    """An answer that is sent while its query runs."""

    content_type: str
    pieces: Callable[[], Iterator[bytes]]
    """Runs the query; blocks."""
    end: Callable[[int], bytes]
    """Returns the last bytes, from the number of lines that precede them."""


class LinesAnswer:
    """An answer that a thread computes: `ask` may run statements before it returns its lines."""

    def __init__(self, ask: Callable[[], LimitedLines]) -> None:
        self._ask = ask
        self._lines: LimitedLines | None = None

    def pieces(self) -> Iterator[bytes]:
        """Run the query and yield its lines."""
        self._lines = self._ask()
        return self._lines.pieces()

    def end(self, count: int) -> bytes:
        """Return the last line, after all others."""
        lines = self._lines
        if lines is None:
            return end_line(count, is_cut=False)
        return end_line(
            count, is_cut=lines.is_cut, close_keys=lines.close_keys, next_cursor=lines.next_cursor
        )


def end_line(
    count: int, *, is_cut: bool | None = None, close_keys: Sequence[str] = (), next_cursor: str = ""
) -> bytes:
    """Return the last line of a response with `count` lines; `is_cut`: more match than its limit.

    `close_keys`: stored attributes whose keys are similar to those of a filter without a match.
    """
    more: dict[str, object] = {} if is_cut is None else {"cut": is_cut}
    if close_keys:
        more["close_keys"] = close_keys
    if next_cursor:
        more["next"] = next_cursor
    return msgspec.json.encode({"end": {"count": count, **more}}) + b"\n"


def no_end(_count: int) -> bytes:
    """Return nothing: the format has an end mark of its own, or the last chunk is the end."""
    return b""
