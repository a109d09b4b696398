"""Hostile texts of senders in every export, and on pages without a test in a browser."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow.parquet  # type: ignore[import-untyped]  # it has no types

from receiver.console.queries.csv_text import FORMULA_BEGINNINGS
from receiver.console.ui.long_texts import TEXT_CHARS_MAX, with_cut_texts
from tests.console.ui.conftest import HOSTILE, HOSTILE_TRACE, HUGE, HUGE_TRACE, TIMES, Client
from tests.support.cases import each_case

Row = dict[str, Any]


def rows_of_csv(body: bytes) -> list[Row]:
    """Return the rows as a spreadsheet shows them, without the apostrophe before a formula."""
    limit = csv.field_size_limit(16 * len(HUGE))
    rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    csv.field_size_limit(limit)
    assert all(set(row) == set(rows[0]) for row in rows)
    for row in rows:
        assert not any(cell.startswith(FORMULA_BEGINNINGS) for cell in row.values())
    return [{name: without_apostrophe(cell) for name, cell in row.items()} for row in rows]


def without_apostrophe(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_BEGINNINGS) else cell


def rows_of_otlp(body: bytes) -> list[Row]:
    """Return the spans as rows with the columns that the tests compare."""
    return [
        {"TraceId": span["traceId"], "SpanName": span["name"], "StatusMessage": span["status"]["message"]}
        for line in body.splitlines()
        # The last line is the end of the export and has no spans.
        for resource in orjson.loads(line).get("resourceSpans", ())
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


EXPORTS: dict[str, Callable[[bytes], list[Row]]] = {
    "jsonl": lambda body: [orjson.loads(line) for line in body.splitlines() if b"TraceId" in line],
    "csv": rows_of_csv,
    "parquet": lambda body: pyarrow.parquet.read_table(io.BytesIO(body)).to_pylist(),
    "otlp": rows_of_otlp,
}


@each_case("form", EXPORTS)
async def test_export_has_every_hostile_text_unchanged(site: Client, form: str) -> None:
    answer = await site.get(
        "/api/v1/export", params={**TIMES, "filter": "status=error http.route exists", "format": form}
    )

    assert answer.status == 200
    rows = EXPORTS[form](await answer.read())
    for trace_id, texts in ((HOSTILE_TRACE, set(HOSTILE)), (HUGE_TRACE, {HUGE})):
        for column in ("SpanName", "StatusMessage"):
            assert {row[column] for row in rows if row["TraceId"] == trace_id} == texts


async def test_script_of_a_trace_gets_short_names_and_the_whole_span(site: Client) -> None:
    outline = await (await site.get(f"/trace/{HUGE_TRACE}/outline")).json()
    span = await (await site.get(f"/trace/{HUGE_TRACE}/span/{1:016x}")).json()

    assert [len(name) for name in outline["names"]] == [TEXT_CHARS_MAX + len("… (1,048,576 characters)")]
    assert span["name"] == HUGE


def test_texts_are_cut_at_every_depth() -> None:
    long, limit = "x" * (TEXT_CHARS_MAX + 1), "x" * TEXT_CHARS_MAX
    short = f"{limit}… (4,097 characters)"

    assert with_cut_texts({long: [long, limit, 1, {"key": long}]}) == {
        short: [short, limit, 1, {"key": short}]
    }
