"""Writer metrics: copies the writer's progress to the metrics. Called on the event loop, which owns them."""

from __future__ import annotations

import time

from receiver.dead_letters.directory import DeadLetters
from receiver.journal.segments import Journal
from receiver.metrics import Metrics
from receiver.writer.progress import Progress


def report(progress: Progress, dead: DeadLetters, metrics: Metrics) -> None:
    """Set every metric of the writer to its current value."""
    metrics.set("backlog_segments", progress.backlog_segments)
    metrics.set("backlog_bytes", progress.backlog_bytes)
    metrics.set("backlog_age_seconds", progress.oldest_age_s(time.time()))
    metrics.set("backlog_stalled_segments", len(progress.stalled))
    metrics.set("dead_letters", dead.count())
    metrics.set("store_inserts", progress.inserts)
    metrics.set("store_spans", progress.rows)
    metrics.set("store_alarms", progress.alarms)
    metrics.set("redelivery_entries", progress.window_entries)
    metrics.set("redelivery_window_seconds", progress.window_covered_s)
    # Copies, because the writer's thread adds keys, which would end an iteration with an error.
    for drain, count in progress.duplicates.copy().items():
        metrics.set("deliveries_duplicate", count, drain=drain)
    for drain, count in progress.duplicate_spans.copy().items():
        metrics.set("spans_duplicate", count, drain=drain)
    for fault, count in progress.troubles.copy().items():
        metrics.set("store_troubles", count, fault=fault)
    for cause, count in progress.dead_rows.copy().items():
        metrics.set("spans_dead_lettered", count, cause=cause)
    # Observed once each. The writer only appends, so no lock is needed.
    while progress.freshness_s:
        metrics.observe("freshness_seconds", progress.freshness_s.popleft())


def newer_segments_text(journal: Journal) -> str:
    """Return the health text for segments of a newer version; empty if there are none."""
    count = len(journal.newer)
    return (
        f"{count} segments were written by a newer version; run that version to store them" if count else ""
    )
