"""Requests: the spans that rates, error rates and latencies of a service count.

A span of kind Server or Consumer is the called side of a call. A span without a parent is where work
begins that no call started, such as a scheduled job. The other spans are parts of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.console.queries.parameter_types import choice
from receiver.console.queries.question import Parameter
from receiver.console.queries.rollup.tables import IS_REQUEST
from receiver.engine.sql_text import Sql
from receiver.errors import MalformedBody

ALL_SPANS: Final = Sql("1")
_CONDITIONS: Final = {"requests": IS_REQUEST, "all": ALL_SPANS}
SPANS: Final = Parameter(
    "spans",
    "the spans that count, requests (server and consumer spans and spans without a parent) or all; "
    "requests if omitted",
    schema=choice(_CONDITIONS, "requests"),
)
HINT: Final = "only requests count; --spans all counts every span"


def parse_spans(query: Mapping[str, str]) -> Sql:
    """Parse the parameter into the condition that selects requests, or all spans."""
    if (text := query.get(SPANS.name, "requests")) not in _CONDITIONS:
        raise MalformedBody("spans: expected requests or all", field="spans")
    return _CONDITIONS[text]
