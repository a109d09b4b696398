"""Parser of a filter in the one-line form or in JSON. The text shows which of them it is."""

from __future__ import annotations

from receiver.query.filters.filter import TraceFilter
from receiver.query.filters.filter_json import is_json, parse_json_filter
from receiver.query.filters.filter_text import parse_trace_filter


def parse_any_form(text: str) -> TraceFilter:
    """Parse a filter of traces in the one-line form or in JSON. An empty text matches every trace."""
    return parse_json_filter(text) if is_json(text) else parse_trace_filter(text)
