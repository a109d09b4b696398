"""Request bodies of the fault tests: small ones, and large ones that are cheap to send."""

from __future__ import annotations

import gzip
import json
import time

SPANS = 3


def trace_body(trace: int, start_ns: int | None = None, *, spans: int = SPANS, text: str = "") -> bytes:
    """Return a body with one trace, which starts now by default; all its ids are derived from `trace`."""
    start_ns = time.time_ns() if start_ns is None else start_ns
    attributes = [{"key": "text", "value": {"stringValue": text}}] if text else []
    span_objects = [
        {
            "traceId": f"{trace:032x}",
            "spanId": f"{span + 1:016x}",
            "name": f"span {span}",
            "startTimeUnixNano": str(start_ns),
            "endTimeUnixNano": str(start_ns + 1_000),
            "attributes": attributes,
        }
        for span in range(spans)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": span_objects}]}]}).encode()


def large_body(trace: int, size_bytes: int) -> bytes:
    """Return a body that decompresses to `size_bytes`: white space, cheap for the sender."""
    body = trace_body(trace)
    return gzip.compress(body[:-1] + b" " * (size_bytes - len(body)) + body[-1:], 1)
