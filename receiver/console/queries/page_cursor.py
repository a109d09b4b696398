"""Page cursor: where the next page of an answer begins. Clients send it back as they received it.

Invariant: a cursor fixes the time range of the first page, and fits only the parameters of the first page.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from receiver.errors import MalformedBody

PARAMETER: Final = "cursor"
CURSOR_CHARS_MAX: Final = 2_000
_CHANGING: Final = (PARAMETER, "limit")
"""Parameters that may differ between pages."""

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_UInt64 = Annotated[int, msgspec.Meta(ge=0)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class PageCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Position of the last row of a page. The first page begins at a position without a time."""

    digest: _Text
    """Of the parameters of the question."""
    from_ns: _Int64 = 0
    to_ns: _Int64 = 0
    asked_ms: _Int64 = 0
    """When the first page was asked."""
    time_ns: _Int64 | None = None
    trace_id: _Text = ""
    span_id: _Text = ""
    epoch: _UInt64 = 0
    seq: _UInt64 = 0
    equal_count: _UInt64 = 0
    """Rows of the pages so far that have this very position: copies of a span in one segment."""

    def text(self) -> str:
        """Return the form that clients receive."""
        return urlsafe_b64encode(msgspec.json.encode(self)).decode()


def parse_cursor(query: Mapping[str, str], noun: str) -> PageCursor | None:
    """Return the cursor of a call; `None` if the call does not ask for pages. Raises `MalformedBody`.

    `noun`: the noun for a line of the answer. It separates the cursors of queries with equal parameters.
    """
    if PARAMETER not in query:
        return None
    digest, text = _digest_of(query, noun), query[PARAMETER]
    if not text:
        return PageCursor(digest)
    cursor = _decoded(text)
    if cursor is None or cursor.digest != digest or cursor.time_ns is None:
        raise MalformedBody(
            "cursor does not belong to this question; expected an empty one for the first page, or `next` of "
            "the page before, with the same parameters",
            field=PARAMETER,
        )
    return cursor


def _decoded(text: str) -> PageCursor | None:
    if len(text) > CURSOR_CHARS_MAX:
        return None
    try:
        cursor = msgspec.json.decode(urlsafe_b64decode(text), type=PageCursor)
    except (ValueError, msgspec.MsgspecError):
        return None
    # msgspec cannot express an upper bound above 2^63 - 1.
    return cursor if max(cursor.epoch, cursor.seq, cursor.equal_count) < 2**64 else None


def _digest_of(query: Mapping[str, str], noun: str) -> str:
    # Not a signature: a forged cursor reads no more than other parameters do. It detects mistakes.
    fixed = sorted((name, value) for name, value in query.items() if name not in _CHANGING)
    return hashlib.sha256(msgspec.json.encode([noun, *fixed])).hexdigest()[:16]
