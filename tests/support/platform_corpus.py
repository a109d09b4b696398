"""Hostile texts and JSON that a platform, a gateway or a proxy between may answer."""

from __future__ import annotations

from typing import Final

ESCAPES: Final = {
    "clear screen": "\x1b[2J\x1b[H",
    "window title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "8-bit control": "\x9b2J",
    "overwrite": "good\rbad\x08",
    "right to left": "abc\u202egnp.exe",
    "isolate": "\u2066a\u2069",
    "line separator": "a\u2028b",
    "null": "a\x00b",
    "hyperlink": "\x1b]8;;https://evil.example\x1b\\text\x1b]8;;\x1b\\",
}
"""Texts that a terminal would obey."""
HOSTILE_JSON: Final[dict[str, bytes]] = {
    "deep array": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "deep array that is not closed": b"[" * 5_000,
    "infinite number": b'{"type":"a","created":1e999}',
    "number with many digits": b'{"type":"a","created":' + b"9" * 10_000 + b"}",
    "not a number": b'{"type":"a","created":NaN}',
    "negative time": b'{"type":"a","created":-9223372036854775809}',
    "wrong types": b'{"type":[],"created":{},"payload":7}',
    "duplicate key with a wrong type": b'{"type":"a","created":1,"created":"x"}',
    "text after the end": b'{"type":"a","created":1}}',
    "two values": b'{"type":"a","created":1} 2',
    "HTML": b"<html><script>alert(1)</script></html>",
    "byte order mark": b'\xef\xbb\xbf{"type":"a","created":1}',
    "UTF-16": '{"type":"a","created":1}'.encode("utf-16"),
    "empty object": b"{}",
    "null": b"null",
    "text": b'"text"',
    "number": b"0",
    "control bytes": b"\x00\x01\x02",
}
"""Bodies that are no event, no list of models and no completion."""
