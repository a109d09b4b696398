"""Metrics: declarations with name, kind, meaning and labels; values, merged over the processes.

Invariant: a counter never decreases, even if its process is replaced (`carried_over`). Only the event loop's
thread uses a `Metrics`.
Never: labels whose values a sender can choose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

SECONDS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of every histogram's buckets; one more bucket counts longer durations."""

MetricName = Literal[
    "answer_seconds",
    "backlog_age_seconds",
    "backlog_bytes",
    "backlog_bytes_max",
    "backlog_segments",
    "backlog_stalled_segments",
    "body_bytes",
    "build_info",
    "certificate_expires_in_seconds",
    "commit_deliveries",
    "commit_seconds",
    "connections",
    "connections_closed",
    "counting_since_seconds",
    "dead_letters",
    "deliveries",
    "deliveries_duplicate",
    "endpoint_tests",
    "failed_answers_past_hour",
    "failed_answers_past_hour_ratio",
    "failure_budget_answers_left",
    "failure_budget_counts_seconds",
    "failure_budget_ratio_left",
    "freshness_seconds",
    "fsync_seconds",
    "inflight_bytes",
    "ledger_complete_from_seconds",
    "ledger_losses",
    "ledger_spans",
    "open_segment_age_seconds",
    "platform_disabled_left_seconds",
    "platform_installations",
    "process_ends_recent",
    "process_restarts",
    "process_up",
    "queries_lost",
    "redelivery_entries",
    "redelivery_window_seconds",
    "refused_credentials_past_hour",
    "refused_requests_past_hour",
    "refusals",
    "reloads",
    "rollup_lag_seconds",
    "span_notes",
    "spans_accepted",
    "spans_dead_lettered",
    "spans_duplicate",
    "spans_received",
    "spans_rejected",
    "spans_sampled_out",
    "spans_unresolved",
    "store_alarms",
    "store_inserts",
    "store_spans",
    "store_troubles",
    "webhooks",
    "webhooks_applied",
    "webhooks_waiting",
]


class Spec(NamedTuple):
    """Meaning of a metric, and how it is merged over the processes."""

    kind: Literal["counter", "gauge_sum", "gauge_by_process", "seconds"]
    """`gauge_sum` is added up over the processes, `gauge_by_process` gets a label `process`."""
    help: str
    """Meaning and unit of the metric, and the value at which to investigate."""
    labels: tuple[str, ...] = ()


METRICS: dict[MetricName, Spec] = {
    "answer_seconds": Spec(
        "seconds", "From a delivery's last body byte to its answer. Over 5 s the answer is a 503."
    ),
    "backlog_age_seconds": Spec(
        "gauge_sum", "Age of the oldest sealed segment. Rising steadily: the store is down or slow."
    ),
    "backlog_bytes": Spec("gauge_sum", "Size of the sealed segments that are not stored yet."),
    "backlog_bytes_max": Spec(
        "gauge_sum", "Size of the journal at which senders get 503: `journal.bytes_max`."
    ),
    "backlog_segments": Spec("gauge_sum", "Number of sealed segments that are not stored yet."),
    "backlog_stalled_segments": Spec(
        "gauge_sum",
        "Segments that make no progress though the store accepts others. Investigate above 0: `/readyz` "
        "names a segment.",
    ),
    "body_bytes": Spec("counter", "Bytes of bodies as received, before decompression.", ("drain",)),
    "build_info": Spec(
        "gauge_sum", "Always 1; the labels name the running version.", ("version", "core_profile")
    ),
    "certificate_expires_in_seconds": Spec("gauge_by_process", "Time until expiry. Renew below 14 days."),
    "commit_deliveries": Spec(
        "counter", "Deliveries in group commits. Divided by `commit_seconds_count`: deliveries per commit."
    ),
    "commit_seconds": Spec("seconds", "Time to transcode one group commit in the core."),
    "connections": Spec("gauge_sum", "Open connections at the drain endpoint."),
    "connections_closed": Spec(
        "counter",
        "Connections of the API, the admin port and the ClickHouse endpoint that the receiver closed: "
        "`evicted` (longest idle, at the limit), `full` (503: all were busy), `head_timeout`, "
        "`head_too_large`, `write_timeout`.",
        ("port", "reason"),
    ),
    "dead_letters": Spec("gauge_sum", "Dead letters under DATA/dead. Each needs an operator."),
    "counting_since_seconds": Spec(
        "gauge_sum", "Unix time at which all counters started: the supervisor's start."
    ),
    "deliveries": Spec(
        "counter",
        "Requests by the status of their answer; `closed`: the connection closed before the answer. "
        "Investigate anything but 200.",
        ("drain", "status"),
    ),
    "deliveries_duplicate": Spec(
        "counter", "Deliveries answered with 200 whose content was already stored.", ("drain",)
    ),
    "endpoint_tests": Spec(
        "counter",
        "Tests of the endpoint answered with 200: GET, HEAD, or an empty POST without an OTLP content type. "
        "Not counted as deliveries.",
        ("drain",),
    ),
    "failed_answers_past_hour": Spec(
        "gauge_sum",
        "Deliveries of the past hour not answered 2xx, 401, 403 or 405. Platforms disable a drain at 50.",
        ("drain",),
    ),
    "failed_answers_past_hour_ratio": Spec(
        "gauge_sum",
        "Share of `failed_answers_past_hour` among the deliveries of that hour, without 401, 403 and 405. "
        "Platforms disable a drain at 0.8.",
        ("drain",),
    ),
    "failure_budget_answers_left": Spec(
        "gauge_sum",
        "Deliveries that may still fail within the hour: `budget.failed_answers_max`.",
        ("drain",),
    ),
    "failure_budget_counts_seconds": Spec(
        "gauge_sum", "Period that the past-hour gauges cover: since the start, at most an hour."
    ),
    "failure_budget_ratio_left": Spec(
        "gauge_sum", "How much the failed share may still grow before `budget.failed_ratio_max`.", ("drain",)
    ),
    "freshness_seconds": Spec(
        "seconds", "From the receipt of a segment's first delivery until its spans can be queried."
    ),
    "fsync_seconds": Spec(
        "seconds", "Time of one append to the journal with its fsync: the least time that a sender waits."
    ),
    "inflight_bytes": Spec(
        "gauge_sum", "Bytes of bodies being read or decoded. At `limits.inflight_bytes_max` senders get 503."
    ),
    "ledger_complete_from_seconds": Spec(
        "gauge_sum", "Unix time since which the ledger is complete; 0: it has never lost an entry."
    ),
    "ledger_losses": Spec(
        "gauge_sum",
        "Losses of ledger history found at a start and not yet acknowledged: the lines of DATA/ledger.lost. "
        "Investigate above 0.",
    ),
    "ledger_spans": Spec(
        "gauge_sum",
        "Spans since the ledger began, by outcome: `received` is the sum of all others, `journal` counts "
        "spans not stored yet. As in `trace-drain ledger`: kept across restarts, seconds old.",
        ("drain", "outcome"),
    ),
    "open_segment_age_seconds": Spec("gauge_by_process", "Age of the open segment. Above 5: store is slow."),
    "platform_disabled_left_seconds": Spec(
        "gauge_sum",
        "Time until the platform deletes the first disabled installation; 30 days: none is disabled. Below "
        "that, an owner of the team must transfer the integration to a member.",
    ),
    "platform_installations": Spec(
        "gauge_sum", "Installations of the platform's integration. Investigate `disabled`.", ("state",)
    ),
    "process_ends_recent": Spec(
        "gauge_sum",
        "Unexpected exits of the process in the past ten minutes. Investigate at 3: a crash loop.",
        ("process",),
    ),
    "process_restarts": Spec("counter", "Processes replaced after they exited or hung.", ("process",)),
    "process_up": Spec("gauge_sum", "1 while the process runs and reports.", ("process",)),
    "queries_lost": Spec("gauge_sum", "Cancelled queries that do not end. Investigate above 0."),
    "redelivery_entries": Spec("gauge_sum", "Deliveries in the deduplication window."),
    "redelivery_window_seconds": Spec(
        "gauge_sum",
        "How far back a duplicate is recognised. Below `redelivery.window_s`: raise `entries_max`.",
    ),
    "reloads": Spec(
        "counter", "Configuration reloads; after `refused` the old configuration stays in use.", ("outcome",)
    ),
    "rollup_lag_seconds": Spec(
        "gauge_sum",
        "Time since the rollups last covered every closed hour; 0: rollups are off. Rising steadily: the "
        "store has no time to derive them, and queries over many hours read the spans.",
    ),
    "refused_credentials_past_hour": Spec(
        "gauge_sum", "Answers 401 and 403 in the past hour: a wrong secret, or an unknown client.", ("drain",)
    ),
    "refused_requests_past_hour": Spec("gauge_sum", "Requests of the past hour without a 2xx.", ("drain",)),
    "refusals": Spec("counter", "Requests refused or left without an answer, by reason.", ("reason",)),
    "span_notes": Spec("counter", "Spans accepted with a warning or rejected, by reason.", ("reason",)),
    "spans_accepted": Spec("counter", "Spans in acknowledged deliveries that will be stored.", ("drain",)),
    "spans_dead_lettered": Spec("counter", "Accepted spans that became dead letters.", ("cause",)),
    "spans_duplicate": Spec("counter", "All spans of duplicate deliveries.", ("drain",)),
    "spans_received": Spec(
        "counter",
        "Spans in deliveries that were made durable, even if their answer was too late.",
        ("drain",),
    ),
    "spans_rejected": Spec(
        "counter",
        "Spans rejected individually; the sender learns their number from partial_success.",
        ("drain",),
    ),
    "spans_sampled_out": Spec("counter", "Spans dropped by the sampling policy.", ("drain",)),
    "spans_unresolved": Spec("counter", "Accepted spans for which no project was found.", ("drain",)),
    "store_alarms": Spec("counter", "Problems that the writer cannot solve alone. Investigate above 0."),
    "store_inserts": Spec("counter", "INSERTs sent."),
    "store_spans": Spec("counter", "Spans that the store holds, confirmed by a count."),
    "store_troubles": Spec("counter", "Errors of the store, by kind.", ("fault",)),
    "webhooks": Spec(
        "counter",
        "Requests at the path of webhooks by the status of their answer. Investigate anything but 200.",
        ("status",),
    ),
    "webhooks_applied": Spec(
        "counter",
        "Webhooks that took effect (`applied`), changed nothing (`unchanged`), have a type or content that "
        "the receiver does not know (`unknown`), or were received before (`duplicate`).",
        ("outcome",),
    ),
    "webhooks_waiting": Spec(
        "gauge_sum", "Webhooks acknowledged and not yet applied. Rising steadily: see the log."
    ),
}
"""Declarations of all metrics. A name that is missing here is an error in mypy and at run time."""


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One metric with one set of label values, in one process."""

    name: str
    labels: tuple[str, ...]
    value: float
    """For a histogram: the sum of all observations."""
    buckets: tuple[int, ...] = ()
    """For a histogram: observations per bucket, not cumulative."""


class Snapshot(msgspec.Struct, frozen=True):
    process: str
    series: tuple[Series, ...]


class Count:
    """Value of one series. Callers that change it often keep a reference."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Durations(Count):
    """Value of one histogram."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        super().__init__()
        self.buckets = [0] * (len(SECONDS_BUCKETS) + 1)

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add this number of equal observations."""
        self.buckets[bisect_left(SECONDS_BUCKETS, seconds)] += count
        self.value += seconds * count


class Metrics:
    """Registry of one process's series."""

    def __init__(self, process: str = "") -> None:
        self._process = process
        self._counts: dict[tuple[str, ...], Count] = {}

    def count(self, name: MetricName, **labels: str) -> Count:
        """Return one series, created on first use. Labels must come in their declared order."""
        key = (name, *labels.values())
        series = self._counts.get(key)
        if series is None:
            # Only for a new series, because every delivery looks up several.
            _check(name, labels)
            series = self._counts[key] = Durations() if spec_of(name).kind == "seconds" else Count()
        return series

    def add(self, name: MetricName, value: float = 1, **labels: str) -> None:
        self.count(name, **labels).value += value

    def set(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.count(name, **labels).value = value

    def durations(self, name: MetricName) -> Durations:
        """Return one histogram."""
        series = self.count(name)
        if not isinstance(series, Durations):
            raise TypeError(f"metric '{name}' is not a histogram; expected a metric of kind 'seconds'")
        return series

    def observe(self, name: MetricName, seconds: float) -> None:
        self.durations(name).observe(seconds)

    def begin(self, drains: Sequence[str]) -> None:
        """Create all counters with known labels as 0, so that their first increase shows in rate()."""
        for name, spec in METRICS.items():
            if spec.kind == "counter" and not spec.labels:
                self.count(name)
            elif spec.kind == "counter" and spec.labels == ("drain",):
                for drain in drains:
                    self.count(name, drain=drain)

    def snapshot(self) -> Snapshot:
        """Return a copy of all series, for the supervisor."""
        return Snapshot(
            process=self._process,
            series=tuple(
                Series(
                    key[0],
                    key[1:],
                    count.value,
                    # A copy: the list changes while the snapshot waits to be sent.
                    tuple(count.buckets) if isinstance(count, Durations) else (),
                )
                for key, count in self._counts.items()
            ),
        )


def carried_over(ended: Snapshot, before: Snapshot | None) -> Snapshot:
    """Return the counters and histograms of a process that ended, added to those of its predecessors."""
    # A gauge describes a process that runs; the gauges of one that has ended would stay forever.
    lasting = [series for series in ended.series if not spec_of(series.name).kind.startswith("gauge")]
    merged = added_up([*(before.series if before else ()), *lasting])
    return Snapshot(process=ended.process, series=tuple(merged.values()))


def _check(name: MetricName, labels: dict[str, str]) -> None:
    declared = spec_of(name).labels
    if tuple(labels) != declared:
        raise ValueError(f"metric '{name}' got the labels {tuple(labels)}; expected {declared}")


def spec_of(name: str) -> Spec:
    """Return the declaration of a metric. Raises `ValueError` for an unknown name."""
    spec = METRICS.get(name)  # type: ignore[call-overload]  # a name from the channel can be any text
    if spec is None:
        raise ValueError(f"metric '{name}' is not in the list; expected one of receiver.metrics.METRICS")
    known: Spec = spec
    return known


def added_up(series: Iterable[Series]) -> dict[tuple[str, tuple[str, ...]], Series]:
    """Add up the series that have the same name and labels."""
    merged: dict[tuple[str, tuple[str, ...]], Series] = {}
    for new in series:
        key = (new.name, new.labels)
        if key in merged:
            old = merged[key]
            buckets = tuple(a + b for a, b in zip(new.buckets, old.buckets, strict=True))
            merged[key] = Series(new.name, new.labels, new.value + old.value, buckets)
        else:
            merged[key] = new
    return merged
