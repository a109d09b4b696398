"""SQL over HTTP: the statement of a request, the limit of its wall-clock time, and its line in the log.

GET  /api/v1/sql?query=SELECT …&limit=100&format=csv
POST /api/v1/sql                                        {"query": "SELECT …", "limit": 100, "format": "csv"}
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import structlog
from aiohttp import web

from receiver.console.api.dead_letters import require_json_content_type
from receiver.console.api.exports import ENDINGS
from receiver.console.api.lines import StreamedAnswer, limited_answer, no_end
from receiver.console.queries.export import CONTENT_TYPES, ExportFormat
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.raw_sql.statement import SqlQuery, parse_sql, sql, sql_csv, sql_parquet
from receiver.engine.sql_text import SECONDS_MAX
from receiver.engine.store import Store
from receiver.errors import MalformedBody, NotAllowed, StoreTrouble
from receiver.http.peer import network_of

WALL_SECONDS_MAX = SECONDS_MAX + 10
"""Time without output after which an answer ends although the engine does not stop."""


async def statement_of(request: web.Request, *, is_allowed: bool) -> SqlQuery:
    """Return the statement of a request. Raises `NotAllowed` if SQL is off."""
    if not is_allowed:
        raise NotAllowed("SQL is off; expected api.sql = true in the receiver's settings")
    if request.method != "POST":
        return parse_sql(request.query)
    require_json_content_type(request)
    reject_unknown_parameters(request.query)
    try:
        members = msgspec.json.decode(await request.read(), type=dict[str, str | int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody("expected a JSON object with query, limit and format", field="query") from error
    return parse_sql({name: str(value) for name, value in members.items()})


def sql_answer(store: Store, asked: SqlQuery) -> StreamedAnswer:
    """Return the answer to a statement. Only lines of JSON end with their count and whether they are cut."""
    if asked.form == ExportFormat.JSONL:
        return limited_answer(lambda: sql(store, asked))
    pieces = {ExportFormat.CSV: sql_csv, ExportFormat.PARQUET: sql_parquet}[asked.form]
    headers = {"Content-Disposition": f'attachment; filename="rows.{ENDINGS[asked.form]}"'}
    return StreamedAnswer(CONTENT_TYPES[asked.form], partial(pieces, store, asked), no_end, headers)


async def timely(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer. Raises `StoreTrouble` after `WALL_SECONDS_MAX` without one.

    The client does not count: pieces that it has not read are in the spool.
    """
    while (piece := await next_piece(pieces)) is not None:
        yield piece


async def next_piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    """Wait for the next piece; `None` at the end. Raises as `timely` does."""
    try:
        async with asyncio.timeout(WALL_SECONDS_MAX):
            return await anext(pieces, None)
    except TimeoutError as error:
        text = f"the statement did not stop within {WALL_SECONDS_MAX} s"
        raise StoreTrouble(text, code=159, name="TIMEOUT_EXCEEDED") from error


@asynccontextmanager
async def audited(request: web.Request, digest: str) -> AsyncIterator[None]:
    """Log who ran which statement, how long it took and how it ended. The text itself is not logged."""
    began_s, failure = time.monotonic(), ""
    try:
        yield
    # Not only `Exception`: the server cancels the handler of a client that disconnects.
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        structlog.get_logger().info(
            "SQL statement ended",
            peer=network_of(request.remote),
            digest=digest,
            seconds=round(time.monotonic() - began_s, 3),
            error=failure,
        )
