"""Examples on the page of SQL statements."""

from __future__ import annotations

from typing import Final

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
"""Description → statement."""
