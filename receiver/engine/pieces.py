"""Long answers, which arrive in pieces: an answer is whole, or reading it raises `StoreTrouble`.

Also the connection for untrusted statements, over a client of either store: see `ReadOnlyConnection`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from clickhouse_connect.driver.client import Client

from receiver.engine.driver_internals import escaped_already
from receiver.engine.store import Parameters
from receiver.errors import StoreTrouble

PIECE_BYTES = 1 << 18
"""Number of bytes that are read at a time."""
ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Last bytes of a complete Arrow stream."""
PARQUET_MAGIC = b"PAR1"
"""First and last bytes of a Parquet file."""


def pieces_of(
    client: Client, statement: str, parameters: dict[str, Any] | None, settings: dict[str, str], form: str
) -> Iterator[bytes]:
    """Run a query and yield its answer in this format."""
    stream = client.raw_stream(statement, parameters, settings=settings, fmt=form)
    if not isinstance(stream, io.IOBase):
        raise TypeError(f"stream is a {type(stream).__name__}; expected an open file")
    with stream:
        yield from iter(lambda: stream.read(PIECE_BYTES), b"")


def complete_arrow(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield an Arrow stream. Raises if it lacks its end, as after a failed statement."""
    held = b""
    for piece in pieces:
        joined = held + piece
        # The last bytes are held back until more arrive: only at the end are they known to be the mark.
        held = joined[-len(ARROW_END) :]
        if ready := joined[: -len(ARROW_END)]:
            yield ready
    if held != ARROW_END:
        raise StoreTrouble("the store's answer ended without the end mark of an Arrow stream")
    yield held


def complete_parquet(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a Parquet file. Raises at its end if it lacks its magic number, as after a failed statement."""
    end = b""
    for piece in pieces:
        # A piece may be shorter than the magic number.
        end = (end + piece)[-len(PARQUET_MAGIC) :]
        yield piece
    if end != PARQUET_MAGIC:
        raise StoreTrouble("the store's answer ended before the end of the Parquet file")


def complete_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Regroup pieces of a stream so that each ends with a line. Raises at a line that is not an object."""
    rest = b""
    for piece in pieces:
        # A piece may end within a line, whose beginning then waits for the next piece.
        lines, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield _checked(lines + newline)
    # Every row ends with a newline, so a rest is the error text of a server that failed after its 200.
    if rest:
        raise StoreTrouble(_aborted_message(rest))


def _checked(lines: bytes) -> bytes:
    for line in lines.splitlines():
        # The error text may also be followed by a newline.
        if not line.startswith(b"{"):
            raise StoreTrouble(_aborted_message(line))
    return lines


def _aborted_message(line: bytes) -> str:
    return f"the store's answer ended with an error: {line[:200].decode(errors='replace')}"


class ReadOnlyClient:
    """A client whose statements all run with the same settings."""

    def __init__(self, client: Client, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: sent with each statement, unless the client has them already."""
        self._client = client
        self._settings = dict(settings or {})

    def rows(
        self, statement: str, parameters: Parameters | None = None, texts: Mapping[str, str] | None = None
    ) -> list[tuple[Any, ...]]:
        bound = {**(parameters or {}), **escaped_already(texts or {})}
        result = self._client.query(statement, parameters=bound, settings=self._settings)
        return [tuple(row) for row in result.result_rows]

    def lines(self, statement: str) -> Iterator[bytes]:
        yield from complete_lines(pieces_of(self._client, statement, None, self._settings, "JSONEachRow"))

    def parquet(self, statement: str) -> Iterator[bytes]:
        yield from complete_parquet(pieces_of(self._client, statement, None, self._settings, "Parquet"))

    def whole(self, statement: str, form: str, texts: Mapping[str, str]) -> bytes:
        return self._client.raw_query(statement, escaped_already(texts), settings=self._settings, fmt=form)

    def pieces(self, statement: str, form: str, texts: Mapping[str, str]) -> Iterator[bytes]:
        yield from pieces_of(self._client, statement, escaped_already(texts), self._settings, form)
