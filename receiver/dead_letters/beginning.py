"""Beginning of a dead letter as text, so that an operator sees what was refused.

Invariant: work and text are limited, whatever the dead letter contains.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import orjson

from receiver import transcode
from receiver.dead_letters.directory import DeadLetter
from receiver.durable.files import DISK, open_to_read
from receiver.engine.driver_internals import rows_of_native
from receiver.journal.quarantine import Body
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.reports import Beginning

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS_MAX = 3
"""Rows of a dead letter that are shown."""
CHARS_MAX = 4_000
"""Length of the text of a row or of a body."""
EXPANDED_BYTES_MAX = 64 * 1024
"""Part of a compressed body that is expanded, at each of its codings."""


class _Expander(Protocol):
    """State of an expansion."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return at most `max_length` expanded bytes."""


_EXPANDERS: Final[Mapping[str, Callable[[], _Expander]]] = {
    "gzip": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    "deflate": zlib.decompressobj,
    "zstd": zstd.ZstdDecompressor,
}


def beginning_of(item: DeadLetter | Body, core: Core = transcode) -> Beginning:
    """Return the beginning of a dead letter or of a quarantined body. Raises `OSError` if it is gone."""
    try:
        return _of_body(item) if isinstance(item, Body) else _of_rows(item, core)
    # A dead letter may be damaged in any way, or come from another version.
    except (ValueError, zlib.error, zstd.ZstdError) as error:
        return Beginning((), f"it cannot be decoded: {type(error).__name__}")


def _of_rows(dead_letter: DeadLetter, core: Core) -> Beginning:
    content = DISK.read(dead_letter.path)
    scan = core.scan(content)
    rows = min(ROWS_MAX, sum(record.rows for record in scan.records))
    if not rows:
        return Beginning((), "it has no readable row")
    # Only these rows are decoded, and always from the same compression.
    head = core.rewrite(content, [(0, rows)], "zstd", BLOCK_ROWS_MAX)
    record = transcode.scan(head).records[0]
    block = head[record.offset + transcode.HEAD_BYTES + len(record.answers) : record.offset + record.length]
    return Beginning(tuple(map(_row_text, rows_of_native(zstd.decompress(block)))))


def _row_text(row: Mapping[str, Any]) -> str:
    """Return the columns of a row that have a value, as JSON."""
    shown = {name: value for name, value in row.items() if value not in ("", None, [], {})}
    return _cut(orjson.dumps(shown, default=str, option=orjson.OPT_INDENT_2).decode())


def _of_body(body: Body) -> Beginning:
    _, _, *codings = body.path.name.removesuffix(body.path.suffix).split(".")
    with open_to_read(body.path) as file:
        content = file.read(EXPANDED_BYTES_MAX)
    for coding in reversed(codings):
        if coding not in _EXPANDERS:
            return Beginning((), f"it is compressed with {coding}")
        content = _EXPANDERS[coding]().decompress(content, EXPANDED_BYTES_MAX)
    text = content.decode(errors="replace")
    return Beginning((_cut("".join(char if char.isprintable() or char == "\n" else "·" for char in text)),))


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}…"
