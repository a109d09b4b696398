"""JSON texts in an answer that arrives slowly: lines, lines of an event stream, or elements of an array.

The first character that is no white space decides: `[` begins an array. An event stream has one JSON text in
each `data:` line; its other fields, comments and blank lines only keep the connection open.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, Protocol

from receiver.platform.client.errors import AnswerCut, AnswerTooLarge, NotJson
from receiver.settings import MIB
from receiver.sizes import size_text

ITEM_BYTES_MAX = 4 * MIB
"""Maximum size of one line or one element."""
# Possessive, so that each character is read once. Whole texts without an escape are plain too.
_IN_ELEMENT: Final = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+")*+')
_BETWEEN: Final = re.compile(rb'(?:[^"\[\]{},]++|"[^"\\]*+")*+')
_IN_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_IGNORED_FIELDS: Final = (b":", b"event:", b"id:", b"retry:")
_WHITE_SPACE: Final = b" \t\r\n"
DONE: Final = b"[DONE]"
"""Last text of an event stream of the gateway."""


class _Reader(Protocol):
    """Splits pieces of an answer."""

    def feed(self, piece: bytes) -> Iterable[bytes]:
        """Return the texts that are complete now."""

    def end(self) -> list[bytes]:
        """Return the text that the end of the answer completes. Raises `AnswerCut`."""


async def json_texts(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield each JSON text. Raises `AnswerCut` if the answer ends in the middle of an array."""
    reader: _Reader | None = None
    async for piece in pieces:
        begun = piece if reader else piece.lstrip(_WHITE_SPACE)
        if not begun:
            continue
        if reader is None:
            reader = ArrayReader() if begun.startswith(b"[") and not begun.startswith(DONE) else LineReader()
        for text in reader.feed(begun):
            yield text
    for text in reader.end() if reader else []:
        yield text


class LineReader:
    """Splits lines. Removes the field names, blank lines and comments of an event stream.

    `only_event_stream`: raise `NotJson` for a line that is not of an event stream.
    """

    def __init__(self, *, only_event_stream: bool = False) -> None:
        self._rest = bytearray()
        self._only_event_stream = only_event_stream

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the texts of the lines that are complete now."""
        head, line_feed, tail = piece.rpartition(b"\n")
        lines: list[bytes] = []
        if line_feed:
            lines = bytes(self._rest + head).split(b"\n")
            self._rest.clear()
        self._rest += tail
        for line in lines:
            if text := self._text_of(line):
                yield text
        _require_size(len(self._rest))

    def end(self) -> list[bytes]:
        """Return the text of a last line without its end."""
        text = self._text_of(bytes(self._rest))
        return [text] if text else []

    def _text_of(self, line: bytes) -> bytes:
        """Return the JSON text of a line; empty if it has none."""
        _require_size(len(line))
        line = line.strip(_WHITE_SPACE)
        if line.startswith(b"data:"):
            return line[len(b"data:") :].strip(_WHITE_SPACE)
        if not line or line.startswith(_IGNORED_FIELDS):
            return b""
        if self._only_event_stream:
            raise NotJson("a line of the stream is not of an event stream; expected `data: JSON`")
        return line


class ArrayReader:
    """Splits the elements of a JSON array, which may be spread over lines and pieces in any way."""

    def __init__(self) -> None:
        self._element = bytearray()
        self._depth = 0
        self._is_in_text = False
        self._skips_first = False
        """Whether the next piece begins with an escaped character."""
        self._is_complete = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the elements that are complete now."""
        elements: list[bytes] = []
        copied = at = self._end_of_plain(piece, 0)
        self._element += piece[:copied]
        while at < len(piece):
            if (end := self._follow(piece[at : at + 1], at)) is not None:
                self._element += piece[copied:end]
                copied = at + 1
                elements += self._taken()
            at = self._end_of_plain(piece, at + 1)
        self._element += piece[copied:]
        _require_size(len(self._element))
        if self._is_complete and self._element.strip(_WHITE_SPACE):
            raise NotJson("the answer has text after the end of its array")
        return elements

    def end(self) -> list[bytes]:
        """Raise `AnswerCut` unless the array is complete."""
        if not self._is_complete:
            raise AnswerCut("the answer ended before the end of its array")
        return []

    def _end_of_plain(self, piece: bytes, at: int) -> int:
        """Return the position of the next significant character, or the end of the piece."""
        if self._skips_first and at < len(piece):
            self._skips_first, at = False, at + 1
        plain = _IN_TEXT if self._is_in_text else _IN_ELEMENT if self._depth > 1 else _BETWEEN
        match = plain.match(piece, at)
        return match.end() if match else at

    def _follow(self, sign: bytes, at: int) -> int | None:
        """Process a significant character. Return the end of an element that it completes, if any."""
        if self._is_complete:
            raise NotJson("the answer has text after the end of its array")
        if self._is_in_text:
            # The only backslash that is no part of `_IN_TEXT` is the last character of a piece.
            self._is_in_text = self._skips_first = sign == b"\\"
            return None
        self._is_in_text = sign == b'"'
        if sign in b"[{":
            self._depth += 1
            return at if self._depth == 1 else None
        if sign in b"]}":
            return self._closed(sign, at)
        return at if sign == b"," else None

    def _closed(self, sign: bytes, at: int) -> int | None:
        """Process a closing bracket. It completes an object, before the next comma, which may arrive late."""
        self._depth -= 1
        self._is_complete = self._depth == 0
        if self._is_complete and sign != b"]":
            raise NotJson("the answer has an array that does not end with a bracket")
        return at + (self._depth == 1) if self._depth <= 1 else None

    def _taken(self) -> list[bytes]:
        element = bytes(self._element).strip(_WHITE_SPACE)
        _require_size(len(element))
        self._element.clear()
        return [element] if element else []


def _require_size(size_bytes: int) -> None:
    if size_bytes > ITEM_BYTES_MAX:
        raise AnswerTooLarge(f"a line of the answer is larger than {size_text(ITEM_BYTES_MAX)}")
