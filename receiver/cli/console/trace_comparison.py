"""The differences of two traces as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from receiver.cli.console.waterfall import indentation, span_text
from receiver.console.queries.traces.trace_model import Row
from receiver.sizes import counted, duration_text

TEXT_COLUMNS = 80


def comparison_lines(rows: Sequence[Row], trace_id: str, other_id: str) -> Iterator[str]:
    """Yield a heading, and a line for each pair of spans and each span of one trace alone."""
    counts = Counter(row["change"] for row in rows)
    yield f"A: trace {trace_id}"
    yield f"B: trace {other_id}"
    both, removed, added = (counts[change] for change in ("none", "removed", "added"))
    yield f"{counted(both, 'span')} in both, {removed} only in A, {added} only in B"
    yield f"{'A':>8} {'B':>8} {'B - A':>9}"
    for row in rows:
        text = indentation(row["depth"], TEXT_COLUMNS) + span_text(row["service"], row["name"])
        times = f"{_duration(row['a']):>8} {_duration(row['b']):>8} {_change(row):>9}"
        yield f"{times} {text} {_note(row)}".rstrip()


def _duration(span: dict[str, Any] | None) -> str:
    return duration_text(round(span["duration_ms"] * 1e6)) if span else "-"


def _change(row: Row) -> str:
    if row["duration_change_ms"] is None:
        return "only in A" if row["b"] is None else "only in B"
    change_ns = round(row["duration_change_ms"] * 1e6)
    return f"{'-' if change_ns < 0 else '+'}{duration_text(abs(change_ns))}"


def _note(row: Row) -> str:
    statuses = [span["status"] for span in (row["a"], row["b"]) if span]
    if "Error" not in statuses:
        return ""
    if len(statuses) == 1 or statuses[0] == statuses[1]:
        return "[error]"
    return "[error only in A]" if statuses[0] == "Error" else "[error only in B]"
