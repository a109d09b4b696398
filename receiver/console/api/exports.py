"""Route of an export, which is a file: `GET /api/v1/export?format=csv&filter=&since=&until=`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web

from receiver.console.api.answers import SourceRoutes, send_lines
from receiver.console.api.description.operation import BY_QUERY, FILTER, UNTIL, Operation, since
from receiver.console.api.lines import StreamedAnswer, end_line, no_end
from receiver.console.api.route import Route, query_route
from receiver.console.queries.export import CONTENT_TYPES, FORMATS, ExportFormat, export, parse_export
from receiver.console.queries.parameter_types import choice
from receiver.console.queries.question import Parameter
from receiver.http.media_types import JSON_LINES
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


class ExportRoutes(SourceRoutes):
    """Handler of the route."""

    def routes(self) -> tuple[Route, ...]:
        """Return the route."""
        return (query_route("/api/v1/export", self._export, _EXPORT),)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        source = self._source_for(request)
        return await send_lines(source, source.queues.heavy, export_answer(request.query))


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
