"""Routes of stored rows in bulk: an export, which is a file, and reads of `trace-drain store move`.

GET  /api/v1/export?format=csv&filter=&since=&until=
POST /api/v1/store/read                                  {"what": "segments", "hour": 494321}
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, get_args

import msgspec
from aiohttp import web

from receiver.console.api.answers import SourceRoutes, send_lines
from receiver.console.api.description.operation import BY_QUERY, FILTER, UNTIL, Operation, since
from receiver.console.api.lines import ARROW, StreamedAnswer, end_line, no_end
from receiver.console.api.route import Route, query_route
from receiver.console.queries.export import CONTENT_TYPES, FORMATS, ExportFormat, export, parse_export
from receiver.console.queries.limits import within_time
from receiver.console.queries.parameter_types import choice, whole_number
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.engine import copying
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON_LINES, require_json
from receiver.time_range import TimeRange

ENDINGS: Mapping[ExportFormat, str] = {
    ExportFormat.JSONL: "jsonl",
    ExportFormat.OTLP: "otlp.jsonl",
    ExportFormat.CSV: "csv",
    ExportFormat.PARQUET: "parquet",
}


_EXPORT: Final = Operation(
    "export",
    "Every stored column of all spans that match, oldest first, without a limit on rows.",
    (
        FILTER,
        since(),
        UNTIL,
        Parameter(
            "format",
            "jsonl: a JSON object for each span; csv; otlp: lines of OTLP JSON; parquet",
            schema=choice(FORMATS, ExportFormat.JSONL),
        ),
    ),
    tuple(dict.fromkeys(CONTENT_TYPES.values())),
    BY_QUERY,
)
_WHAT: Final = (*get_args(copying.Lines), *get_args(copying.Rows))
_UINT64: Final = whole_number(0, 2**64 - 1)
_READ: Final = Operation(
    "readStore",
    "Rows of the store for `trace-drain store move`: their counts and checksums, or the rows.",
    content_types=(JSON_LINES, ARROW),
    errors=BY_QUERY,
    body=(
        Parameter("what", "what is read", is_required=True, schema={"type": "string", "enum": [*_WHAT]}),
        Parameter("hour", "hours since 1970", schema=whole_number(0, copying.HOURS_MAX, 0)),
        Parameter("epoch", "the epoch of segments", schema=_UINT64),
        Parameter("seqs", "the numbers of segments", schema={"type": "array", "items": _UINT64}),
    ),
)


class ExportRoutes(SourceRoutes):
    """Handlers of the routes."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            query_route("/api/v1/export", self._export, _EXPORT),
            Route("POST", "/api/v1/store/read", self._read, "admin", operation=_READ),
        )

    async def _export(self, request: web.Request) -> web.StreamResponse:
        source = self._source_for(request)
        return await send_lines(source, source.queues.heavy, export_answer(request.query))

    async def _read(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        require_json(request.content_type)
        try:
            read = msgspec.json.decode(await request.read(), type=copying.Read)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedBody("expected a JSON object with what, hour, epoch and seqs") from error
        content_type, end = (JSON_LINES, end_line) if read.has_lines else (ARROW, no_end)
        answer = StreamedAnswer(content_type, lambda store: within_time(read.run(store)), end)
        source = self._source_for(request)
        return await send_lines(source, source.queues.heavy, answer)


def export_answer(query: Mapping[str, str]) -> StreamedAnswer:
    """Return the answer to a request for an export. The end of CSV is the last chunk of the response."""
    wanted, now_s = parse_export(query), time.time()
    content_type = CONTENT_TYPES[wanted.form]
    end = end_line if content_type == JSON_LINES else no_end
    name = file_name(wanted.range, wanted.form, now_s)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamedAnswer(content_type, lambda store: export(store, wanted, now_s), end, headers)


def file_name(exported: TimeRange, form: ExportFormat, now_s: float) -> str:
    """Return a name such as `spans-20260131T100000Z-20260131T110000Z.csv`: the time range up to now."""
    begin, end = (_instant_text(at_s) for at_s in exported.past_s(now_s))
    return f"spans-{begin}-{end}.{ENDINGS[form]}"


def _instant_text(at_s: float) -> str:
    # Not `fromtimestamp`, which refuses years that a range may reach.
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(at_s)):%Y%m%dT%H%M%SZ}"
