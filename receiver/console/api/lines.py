"""Format of a streamed response: one JSON object per line, then a line with their count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, NotRequired, TypedDict

import msgspec

from receiver.console.queries.limits import LimitedLines
from receiver.engine.store import Store
from receiver.http.media_types import JSON_LINES

ARROW = "application/vnd.apache.arrow.stream"
"""Content type of an answer that has its own end mark."""


class End(TypedDict):
    """Summary of an answer with lines."""

    count: int
    """Number of lines before this line."""
    cut: NotRequired[bool]
    """Whether more match than the limit."""
    close_keys: NotRequired[list[str]]
    """Stored attributes whose keys are similar to those of a filter without a match."""
    hidden: NotRequired[bool]
    """Whether the trace has spans of projects that the caller may not see."""
    next: NotRequired[str]
    """Cursor of the next page."""


class EndLine(TypedDict):
    """The last line of an answer with lines; without it the answer is incomplete."""

    end: End


def no_end(_count: int) -> bytes:
    """Return no bytes: the format has its own end mark, or the last chunk is the end."""
    return b""


class StreamedAnswer(NamedTuple):
    """An answer that is sent while its query runs."""

    content_type: str
    pieces: Callable[[Store], Iterator[bytes]]
    """Runs the query; blocks."""
    end: Callable[[int], bytes] = no_end
    """Returns the end of the answer. Its argument is the number of preceding lines."""
    headers: Mapping[str, str] = {}
    failure: Callable[[Exception], bytes] | None = None
    """Returns the bytes that report a failure after the first bytes; `None` if only the missing end does."""


def end_line(
    count: int,
    *,
    is_cut: bool | None = None,
    close_keys: Sequence[str] = (),
    next_cursor: str = "",
    hides_spans: bool = False,
) -> bytes:
    """Return the last line of a response with `count` lines; `is_cut`: more match than its limit.

    `close_keys`: stored attributes whose keys are similar to those of a filter without a match.
    `hides_spans`: the trace has spans of projects that the caller may not see.
    """
    more: dict[str, object] = {} if is_cut is None else {"cut": is_cut}
    if close_keys:
        more["close_keys"] = close_keys
    if hides_spans:
        more["hidden"] = True
    if next_cursor:
        more["next"] = next_cursor
    return msgspec.json.encode({"end": {"count": count, **more}}) + b"\n"


def limited_answer(ask: Callable[[Store], LimitedLines]) -> StreamedAnswer:
    """Return an answer whose query runs in a thread. `ask` may run statements before it returns its lines."""
    asked: list[LimitedLines] = []

    def pieces(store: Store) -> Iterator[bytes]:
        asked.append(ask(store))
        return asked[0].pieces()

    def end(count: int) -> bytes:
        (lines,) = asked
        return end_line(
            count, is_cut=lines.is_cut, close_keys=lines.close_keys, next_cursor=lines.next_cursor
        )

    return StreamedAnswer(JSON_LINES, pieces, end)
