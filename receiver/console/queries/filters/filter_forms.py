"""Parser of a filter in the one-line form or in JSON. The text shows which of them it is."""

from __future__ import annotations

from receiver.console.queries.filters.filter import Filter, TraceFilter
from receiver.console.queries.filters.filter_json import is_json, parse_json_filter, parse_json_span_filter
from receiver.console.queries.filters.filter_text import parse_filter, parse_trace_filter


def parse_span_filter(text: str) -> Filter:
    """Parse a filter of spans in the one-line form or in JSON. An empty text matches every span."""
    return parse_json_span_filter(text) if is_json(text) else parse_filter(text)


def parse_any_form(text: str) -> TraceFilter:
    """Parse a filter of traces in the one-line form or in JSON. An empty text matches every trace."""
    return parse_json_filter(text) if is_json(text) else parse_trace_filter(text)
