"""Traces of a few rows for tests, hand-written or random."""

from __future__ import annotations

import random
from typing import Any

Row = dict[str, Any]


def span(span_id: str, parent: str = "", start: int = 0, end: int = 10, **columns: Any) -> Row:  # noqa: ANN401 - any column
    """Return a row; `start` and `end` are nanoseconds after 10:00:00."""
    defaults = {
        "Timestamp": f"2026-01-31 10:00:{start // 10**9:02d}.{start % 10**9:09d}",
        "TraceId": "t" * 32,
        "SpanId": span_id,
        "ParentSpanId": parent,
        "ServiceName": "shop",
        "SpanName": f"span {span_id}",
        "SpanKind": "Internal",
        "Duration": end - start,
        "StatusCode": "Unset",
        "StatusMessage": "",
        "Events.Timestamp": [],
        "Events.Name": [],
        "Events.Attributes": [],
        "Links.TraceId": [],
        "Links.SpanId": [],
    }
    return {**defaults, **columns}


def random_rows(rng: random.Random) -> list[Row]:
    """Return rows of a trace with copies, orphans, cycles, shared ids, and children outside their parents."""
    count = rng.randrange(1, 12)
    rows = []
    for number in range(count):
        start = rng.randrange(30)
        parent = rng.choice(["", "absent", *(str(other) for other in range(count))])
        if number and rng.random() < 0.7:
            parent = str(rng.randrange(number))
        span_id = str(rng.randrange(count)) if rng.random() < 0.1 else str(number)
        status = rng.choice(["Unset", "Unset", "Error"])
        rows.append(span(span_id, parent, start, start + rng.randrange(25), StatusCode=status))
        if rng.random() < 0.1:
            rows.append({**rows[-1], "Drain": "second"})
    rng.shuffle(rows)
    return rows
