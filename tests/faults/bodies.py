"""Bodies that the fault cases send: small ones, and large ones that cost their sender nothing."""

from __future__ import annotations

import gzip
import json


def trace_body(trace: int, start_ns: int, *, spans: int = 3, text: str = "") -> bytes:
    """One trace whose every id is a function of its number."""
    attributes = [{"key": "text", "value": {"stringValue": text}}] if text else []
    made = [
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
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}).encode()


def large_body(trace: int, start_ns: int, size_bytes: int) -> bytes:
    """A body that unpacks to about so much: white space, which costs nobody memory but whoever unpacks it."""
    body = trace_body(trace, start_ns)
    return gzip.compress(body[:-1] + b" " * (size_bytes - len(body)) + body[-1:], 1)
