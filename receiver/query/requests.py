"""Requests: the spans that rates, error rates and latencies of a service are about.

A span of kind Server or Consumer is the called side of a call. A span without a parent is where work
begins that no call started, such as a scheduled job. The other spans are parts of a request.
"""

from __future__ import annotations

from typing import Final

from receiver.errors import MalformedBody
from receiver.query.parameter_types import choice
from receiver.query.question import Parameter

_CONDITIONS: Final = {
    "requests": "(SpanKind IN ('Server', 'Consumer') OR ParentSpanId = '')",
    "all": "1",
}
SPANS: Final = Parameter(
    "spans",
    "the spans that count, requests (server and consumer spans and spans without a parent) or all; "
    "requests if omitted",
    schema=choice(_CONDITIONS, "requests"),
)
HINT: Final = "only requests count; --spans all counts every span"

ESTIMATES: Final = """
    if(countIf(isNull(SampleWeight)) = 0, sum(SampleWeight), NULL) AS estimated_spans,
    if(countIf(isNull(SampleWeight)) = 0,
        sum(if(StatusCode = 'Error', SampleWeight, 0)), NULL) AS estimated_errors,
    if(countIf(isNull(SampleWeight)) = 0,
        1.96 * sqrt(greatest(0, sum(SampleWeight * (SampleWeight - 1)))), NULL) AS estimated_spans_margin"""
"""Estimates of what was sent before sampling, with half the 95 % interval. NULL if a weight is not known."""


def counted_spans(text: str = "requests") -> str:
    """Return the condition of the spans that count."""
    if text not in _CONDITIONS:
        raise MalformedBody("spans: expected requests or all", field="spans")
    return _CONDITIONS[text]
