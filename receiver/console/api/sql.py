"""Routes of SQL: the rows of a SELECT statement.

GET  /api/v1/sql?query=SELECT …&limit=100&format=csv
POST /api/v1/sql                                        {"query": "SELECT …", "limit": 100, "format": "csv"}
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import hdrs, web

from receiver.console.api.answers import SourceRoutes
from receiver.console.api.description.operation import BY_QUERY, Operation
from receiver.console.api.exports import ENDINGS
from receiver.console.api.lines import StreamedAnswer, limited_answer
from receiver.console.api.responses import head_of, send
from receiver.console.api.route import Route
from receiver.console.queries.export import CONTENT_TYPES, ExportFormat
from receiver.console.queries.parameter_types import choice, whole_number
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.console.queries.raw_sql import statement
from receiver.errors import MalformedBody, NotAllowed
from receiver.http.media_types import require_json

_MEMBERS: Final = (
    Parameter(
        "query",
        "a SELECT statement in ClickHouse's SQL",
        is_required=True,
        schema={"type": "string", "minLength": 1, "maxLength": statement.QUERY_CHARS_MAX},
    ),
    Parameter(
        "limit",
        "maximum number of lines",
        schema=whole_number(1, statement.LINES_MAX, statement.LINES_DEFAULT),
    ),
    Parameter("format", "format of the lines", schema=choice(statement.FORMATS, ExportFormat.JSONL)),
)
_TYPES: Final = tuple(CONTENT_TYPES[form] for form in statement.FORMATS)
_GET: Final = Operation(
    "sql", "The rows of a SELECT statement, if the setting api.sql allows it.", _MEMBERS, _TYPES, BY_QUERY
)
_POST: Final = Operation(
    "postSql",
    "The same, with the statement in the body, which may be longer than a URL.",
    content_types=_TYPES,
    errors=(*BY_QUERY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    body=_MEMBERS,
)


class SqlRoutes(SourceRoutes):
    """Handlers of the routes."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("GET", "/api/v1/sql", self._sql, "operator", operation=_GET),
            Route("POST", "/api/v1/sql", self._sql, "operator", operation=_POST),
        )

    async def _sql(self, request: web.Request) -> web.StreamResponse:
        source = self._source_for(request)
        asked = await statement_of(request, is_allowed=source.allows_sql)
        answer = sql_answer(asked)
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        async with source.stream_sql(source.queues.sql, asked.digest, answer.pieces) as pieces:
            return await send(request, await anext(pieces, b""), pieces, answer)


async def statement_of(request: web.Request, *, is_allowed: bool) -> statement.SqlQuery:
    """Return the statement of a request. Raises `NotAllowed` if SQL is off."""
    if not is_allowed:
        raise NotAllowed("SQL is off; expected api.sql = true in the receiver's settings")
    if request.method != "POST":
        return statement.parse_sql(request.query)
    require_json(request.content_type)
    reject_unknown_parameters(request.query)
    try:
        members = msgspec.json.decode(await request.read(), type=dict[str, str | int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody("expected a JSON object with query, limit and format", field="query") from error
    return statement.parse_sql({name: str(value) for name, value in members.items()})


def sql_answer(asked: statement.SqlQuery) -> StreamedAnswer:
    """Return the answer to a statement. Only lines of JSON end with their count and whether they are cut."""
    if asked.form == ExportFormat.JSONL:
        return limited_answer(lambda store: statement.sql(store, asked))
    pieces = {ExportFormat.CSV: statement.sql_csv, ExportFormat.PARQUET: statement.sql_parquet}[asked.form]
    headers = {"Content-Disposition": f'attachment; filename="rows.{ENDINGS[asked.form]}"'}
    return StreamedAnswer(CONTENT_TYPES[asked.form], lambda store: pieces(store, asked), headers=headers)
