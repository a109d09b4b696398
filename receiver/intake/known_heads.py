"""Known request heads: splits a head that aiohttp parsed, so that the core recognises an equal head.

The bytes must be equal except for the digits of Content-Length.
"""

from __future__ import annotations

import re

from receiver.transcode import KnownHead

HEAD_END = b"\r\n\r\n"
LENGTH_NAME = b"content-length"
LENGTH_LINE = re.compile(rb"\r\ncontent-length: ([1-9][0-9]{0,8})\r\n", re.IGNORECASE)


def known_head(first: bytes, request_bytes: int, body_bytes: int) -> KnownHead | None:
    """Split the head of a request; `None` unless the parser was fed exactly this head and its body."""
    size_bytes = request_bytes - body_bytes
    head = first[:size_bytes]
    line = LENGTH_LINE.search(head)
    is_whole = head.find(HEAD_END) == size_bytes - len(HEAD_END)
    # Exactly one Content-Length, and no byte other than this head and body, so that the parser is between
    # requests.
    if line is None or not is_whole or int(line[1]) != body_bytes or head.lower().count(LENGTH_NAME) != 1:
        return None
    return KnownHead(head[: line.start(1)], head[line.end(1) :])
