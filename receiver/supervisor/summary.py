"""Summary line, logged once a minute: spans received, spans stored, backlog.

Never: logs a line if nothing has changed since the last line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import structlog

from receiver.metrics import METRICS, Snapshot

COUNTED = {
    "spans_accepted": "spans_accepted",
    "spans_rejected": "spans_rejected",
    "spans_sampled_out": "spans_sampled_out",
    "spans_duplicate": "spans_duplicate",
    "spans_dead_lettered": "spans_dead_lettered",
    "store_spans": "spans_stored",
}
"""Counters, and the names of their fields in the line."""
WAITING = ("backlog_segments", "backlog_bytes")
DRAIN_LABEL, STATUS_LABEL = (METRICS["deliveries"].labels.index(name) for name in ("drain", "status"))


class Summary:
    """Logs the differences between the merged counters and those of the previous line."""

    def __init__(self) -> None:
        self._child_snapshots: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        """Last known backlog; empty if no store process runs."""

    def log(self, snapshots: Iterable[Snapshot]) -> None:
        """Log the changes since the last call, if there are any."""
        counted, answers, waiting = _totals(snapshots)
        # Counter subtraction drops zeros, so both are empty if nothing has changed.
        new, new_answers = counted - self._child_snapshots, answers - self._answers
        if new or new_answers or (waiting and waiting != self._waiting):
            structlog.get_logger().info(
                "summary",
                deliveries=new_answers.total(),
                answers=dict(sorted(new_answers.items())),
                **{field: new[field] for field in COUNTED.values()},
                **waiting,
            )
        self._child_snapshots, self._answers, self._waiting = counted, answers, waiting


def _totals(snapshots: Iterable[Snapshot]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return spans by outcome, answers by status class, and the backlog if the store process reported it."""
    counted, answers, waiting = Counter[str](), Counter[str](), Counter[str]()
    for snapshot in snapshots:
        for series in snapshot.series:
            if series.name in COUNTED:
                counted[COUNTED[series.name]] += int(series.value)
            elif series.name in WAITING:
                waiting[series.name] += int(series.value)
            # Requests that match no drain have an empty label. A port scan must not look like traffic.
            elif series.name == "deliveries" and series.labels[DRAIN_LABEL]:
                answers[_class_of(series.labels[STATUS_LABEL])] += int(series.value)
    return counted, answers, waiting


def _class_of(status: str) -> str:
    return f"{status[0]}xx" if status.isdigit() else status
