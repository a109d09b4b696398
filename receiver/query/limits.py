"""Limits of a query, attached to every statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from receiver.errors import StoreTrouble

SPANS_DEFAULT = 100
SPANS_MAX = 1_000_000
"""Maximum number of spans in a response, which is streamed."""
COUNTS_MAX = 2_000_000
"""Maximum number of lines of a count query, which is streamed."""
VERIFY_ROWS_MAX = 10_000_000
"""Maximum number of rows that one statement of `ledger --verify` reads; a single hour may have more."""
SECONDS_MAX = 60
"""Time limit in the engine."""
MEMORY_BYTES_MAX = 2 << 30
"""Memory limit in the engine."""

SETTINGS = (
    "SETTINGS session_timezone = 'UTC', output_format_json_quote_64bit_integers = 0, "
    "output_format_json_escape_forward_slashes = 0, "
    f"max_execution_time = {SECONDS_MAX}, max_memory_usage = {MEMORY_BYTES_MAX}"
)
"""Times are UTC. 64-bit integers are JSON numbers; readers that parse them as doubles lose precision."""


def within_time(pieces: Iterator[bytes], now: Callable[[], float] = time.monotonic) -> Iterator[bytes]:
    """Yield the pieces; raise instead of ending once the engine's time limit has passed.

    The embedded engine may end a stream at its time limit without an error, rows missing. Its clock starts
    after ours, so an end before the limit is the end of the rows.
    """
    began_s = now()
    yield from pieces
    if now() - began_s >= SECONDS_MAX:
        raise StoreTrouble(
            f"the answer took over {SECONDS_MAX} s; rows may be missing", code=159, name="TIMEOUT_EXCEEDED"
        )
