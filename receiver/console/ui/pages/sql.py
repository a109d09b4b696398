"""Page of SQL statements: an editor, the tables and their columns, and the result as a table or a chart.

A statement of at most `LINK_BYTES_MAX` bytes is in the URL, as the state of every page is. The form is sent
by POST and redirects to that URL. A longer statement is answered without a URL of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from itertools import groupby
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from receiver.console.api.problems import problem_of
from receiver.console.api.source import Row, SqlAnswer
from receiver.console.queries.raw_sql.statement import FORMATS, LINES_MAX, QUERY_CHARS_MAX, Column, parse_sql
from receiver.console.ui.charts.result_chart import is_number, is_time, result_chart
from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.engine.sql_text import SECONDS_MAX
from receiver.errors import ReceiverError

PATH: Final = "/sql"
LINK_BYTES_MAX = 2_000
"""Size of a statement up to which it has a URL; percent-encoding triples it, and URLs have a limit."""
ROWS_MAX = 500
"""Maximum number of rows on the page; a file has up to `LINES_MAX`."""
CELL_CHARS_MAX = 400
"""Maximum length of a value on the page; a file has the whole value."""
LIMITS: Final = {
    "rows": ROWS_MAX,
    "lines": LINES_MAX,
    "seconds": SECONDS_MAX,
    "characters": QUERY_CHARS_MAX,
    "link_bytes": LINK_BYTES_MAX,
    "cell_characters": CELL_CHARS_MAX,
}
SHOWN: Final = ("chart", "table")
EXAMPLES: Final = {
    "Spans and errors per minute": """\
SELECT toStartOfMinute(Timestamp) AS minute, count() AS spans, countIf(StatusCode = 'Error') AS errors
FROM otel_traces
WHERE Timestamp > now() - INTERVAL 1 HOUR
GROUP BY minute ORDER BY minute""",
    "Spans by service": """\
SELECT ServiceName, count() AS spans
FROM otel_traces
WHERE Timestamp > now() - INTERVAL 1 HOUR
GROUP BY ServiceName ORDER BY spans DESC LIMIT 20""",
    "Slowest operations": """\
SELECT ServiceName, SpanName, count() AS spans, round(quantile(0.95)(Duration) / 1e6, 1) AS p95_ms
FROM otel_traces
WHERE Timestamp > now() - INTERVAL 1 HOUR
GROUP BY ALL ORDER BY p95_ms DESC LIMIT 20""",
    "Failed spans": """\
SELECT Timestamp, TraceId, ServiceName, SpanName, StatusMessage
FROM otel_traces
WHERE Timestamp > now() - INTERVAL 1 HOUR AND StatusCode = 'Error'
ORDER BY Timestamp DESC LIMIT 50""",
    "Values of an attribute": """\
SELECT SpanAttributes['http.route'] AS route, count() AS spans
FROM otel_traces
WHERE Timestamp > now() - INTERVAL 1 HOUR AND route != ''
GROUP BY route ORDER BY spans DESC LIMIT 20""",
}
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


class Cell(NamedTuple):
    """A value as the page shows it."""

    text: str
    kind: str = ""
    """Class in the style sheet: `null`, `number`, `when`, or empty."""
    link: str = ""


def link_of(form: Mapping[str, str]) -> str:
    """Return the URL of a statement; empty if the statement is too long."""
    # A text area has the line ends of a form.
    text = form.get("q", "").replace("\r\n", "\n")
    if len(text.encode(errors="surrogatepass")) > LINK_BYTES_MAX:
        return ""
    return f"{PATH}?{_encoded(q=text)}"


def _file_link(text: str, form: str) -> str:
    return f"/api/v1/sql?{_encoded(query=text, limit=str(LINES_MAX), format=form)}"


def _encoded(**parameters: str) -> str:
    return urlencode(parameters, quote_via=quote, errors="replace")


async def build(view: View) -> Context:
    """Return the result of the statement `q`, or its error."""
    if not view.source.allows_sql:
        return {"is_off": True}
    text = view.query.get("q", "").replace("\r\n", "\n")
    link = link_of({"q": text})
    context: Context = {
        "is_off": False,
        "text": text,
        "link": link,
        "tables": [],
        "examples": {name: link_of({"q": example}) for name, example in EXAMPLES.items()},
        "limits": LIMITS,
        "files": {form: _file_link(text, form) for form in FORMATS},
        "answer": None,
        "trouble": "",
        "status": HTTPStatus.OK,
    }
    try:
        context["tables"] = _tables(await view.source.sql_columns())
        if text.strip():
            answer = await view.source.sql(parse_sql({"query": text, "limit": str(ROWS_MAX)}))
            context |= _shown(answer, view, has_link=bool(link))
    # The page shows it at the editor, so that the user can correct the statement.
    except ReceiverError as error:
        problem = problem_of(error, "q")
        context |= {"trouble": problem.message, "status": HTTPStatus(problem.status)}
    return context


def _shown(answer: SqlAnswer, view: View, *, has_link: bool) -> Context:
    chart = result_chart(answer)
    choice = view.query.get("show", "")
    show = choice if chart and choice in SHOWN else SHOWN[0] if chart else SHOWN[1]
    rows = [[cell_of(column, row.get(column.name)) for column in answer.columns] for row in answer.rows]
    return {
        "answer": answer,
        "columns": [(column, is_number(column)) for column in answer.columns],
        "rows": rows,
        "is_any_cell_cut": any(len(cell.text) > CELL_CHARS_MAX for row in rows for cell in row),
        "chart": chart,
        # Without a URL the page cannot switch between table and chart, and shows both.
        "show": show if has_link else "both",
    }


def _tables(columns: list[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, list(rows)) for name, rows in groupby(columns, key=lambda row: row["table"])]


def cell_of(column: Column, value: Any) -> Cell:  # noqa: ANN401 - any JSON
    """Return a value of a result as the page shows it."""
    if value is None:
        # JSON has no other form for infinity and NaN; a column that is not Nullable has no NULL.
        is_float = column.type.startswith("Float")
        return Cell("not finite" if is_float else "NULL", "null")
    if isinstance(value, bool):
        return Cell("true" if value else "false")
    if isinstance(value, int | float):
        return Cell(str(value), "number")
    if isinstance(value, str):
        is_trace = column.name == "TraceId" and _TRACE_ID.fullmatch(value)
        link = f"/trace/{value}" if is_trace else ""
        return Cell(_cut(value), "when" if is_time(column) else "", link)
    return Cell(_cut(json.dumps(value, ensure_ascii=False)))


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"
