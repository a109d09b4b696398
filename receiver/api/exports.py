"""Answers with the stored spans as a file: `GET /api/v1/export?format=csv&filter=&since=&until=`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from receiver.api.lines import JSON_LINES, StreamedAnswer, end_line, no_end
from receiver.engine.store import Store
from receiver.query.export import ExportFormat, export, parse_export

CONTENT_TYPES: Mapping[ExportFormat, str] = {
    ExportFormat.JSONL: JSON_LINES,
    ExportFormat.OTLP: JSON_LINES,
    ExportFormat.CSV: "text/csv",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


def export_answer(store: Store, query: Mapping[str, str]) -> StreamedAnswer:
    """Return the answer to a request for an export. The end of CSV is the last chunk of the response."""
    wanted = parse_export(query)
    content_type = CONTENT_TYPES[wanted.form]
    end = end_line if content_type == JSON_LINES else no_end
    return StreamedAnswer(content_type, lambda: export(store, wanted, time.time()), end)
