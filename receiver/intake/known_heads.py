"""Known request heads: recognises a head that equals a head that aiohttp parsed before.

The bytes must be equal except for the digits of Content-Length.

Never: interprets HTTP itself. A head that differs in any other byte is unknown and is parsed by aiohttp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD_END = b"\r\n\r\n"
LENGTH_NAME = b"content-length"
LENGTH_LINE = re.compile(rb"\r\ncontent-length: ([1-9][0-9]{0,8})\r\n", re.IGNORECASE)
LENGTH_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class HeadBytes:
    """A request head, split around the digits of its Content-Length."""

    before: bytes
    after: bytes

    def match(self, data: bytes) -> tuple[int, int] | None:
        """Return the body's length and offset if these bytes start with this head."""
        start = len(self.before)
        # The search is limited: bytes of a body must not be scanned for the end of a number.
        end = data.find(b"\r", start, start + LENGTH_DIGITS_MAX + 1)
        digits = data[start:end]
        # Signs, leading zeros and spaces are left to aiohttp: parsers that disagree on a length allow
        # smuggling.
        is_plain = end > start and digits.isdigit() and digits[0] != ord("0")
        if is_plain and data.startswith(self.before) and data.startswith(self.after, end):
            return int(digits), end + len(self.after)
        return None


def head_bytes(first: bytes, request_bytes: int, body_bytes: int) -> HeadBytes | None:
    """Split the head of a request; `None` unless the parser was fed exactly this head and its body."""
    size_bytes = request_bytes - body_bytes
    head = first[:size_bytes]
    line = LENGTH_LINE.search(head)
    is_whole = head.find(HEAD_END) == size_bytes - len(HEAD_END)
    # Exactly one Content-Length, and no byte other than this head and body, so that the parser is between
    # requests.
    if line is None or not is_whole or int(line[1]) != body_bytes or head.lower().count(LENGTH_NAME) != 1:
        return None
    return HeadBytes(head[: line.start(1)], head[line.end(1) :])
