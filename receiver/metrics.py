"""Every metric: name, kind, meaning, labels; and the counts themselves, merged over the processes.

Keeps: a count never goes backwards, though the process that counted is replaced (`carried_over`).
Never: a label whose values a sender can choose. One `Metrics` belongs to one thread: the event loop's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

SECONDS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper edges of every histogram's buckets; one more holds what is slower."""

MetricName = Literal[
    "answer_seconds",
    "backlog_age_seconds",
    "backlog_bytes",
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
    "process_ends_recent",
    "process_restarts",
    "process_up",
    "redelivery_entries",
    "redelivery_window_seconds",
    "refused_credentials_past_hour",
    "refusals",
    "reloads",
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
]


class Spec(NamedTuple):
    """What a metric means and how it is merged."""

    kind: Literal["counter", "gauge_sum", "gauge_by_process", "seconds"]
    """`gauge_sum` is added up over the processes, `gauge_by_process` gets a label `process`."""
    help: str
    """What it counts, in which unit, and when to worry."""
    labels: tuple[str, ...] = ()


METRICS: dict[MetricName, Spec] = {
    "answer_seconds": Spec(
        "seconds", "From a delivery's last body byte to its answer. Over 5 s it is a 503."
    ),
    "backlog_age_seconds": Spec(
        "gauge_sum", "How long the oldest sealed segment waits. Rising steadily: the store is away or slow."
    ),
    "backlog_bytes": Spec("gauge_sum", "Sealed segments that are not stored yet."),
    "backlog_segments": Spec("gauge_sum", "Their number."),
    "backlog_stalled_segments": Spec(
        "gauge_sum",
        "Segments that make no progress though the store accepts others. Worry above 0: `/readyz` names one.",
    ),
    "body_bytes": Spec("counter", "Bytes of bodies as they came off the wire.", ("drain",)),
    "build_info": Spec("gauge_sum", "Always 1; the labels say what runs.", ("version", "core_profile")),
    "certificate_expires_in_seconds": Spec(
        "gauge_by_process", "Until the certificate ends. Worry below 14 days."
    ),
    "commit_deliveries": Spec("counter", "Deliveries in group commits. Over the commits: a group's size."),
    "commit_seconds": Spec("seconds", "One group transcoded, in the core."),
    "connections": Spec("gauge_sum", "Open connections at the drain endpoint."),
    "connections_closed": Spec(
        "counter",
        "Connections of the API and the admin port that the receiver closed: `evicted` (idle for longest, at "
        "the cap), `full` (503: all were busy), `head_timeout`, `head_too_large`, `write_timeout`.",
        ("port", "reason"),
    ),
    "dead_letters": Spec("gauge_sum", "Segments set aside under DATA/dead. Each one needs a human."),
    "counting_since_seconds": Spec(
        "gauge_sum", "Unix time since which the counters of all processes count: the supervisor's start."
    ),
    "deliveries": Spec(
        "counter",
        "Requests by the status they were answered with; `closed`: the connection ended before. "
        "Worry about anything but 200.",
        ("drain", "status"),
    ),
    "deliveries_duplicate": Spec(
        "counter", "Deliveries answered with 200 whose content was stored already.", ("drain",)
    ),
    "endpoint_tests": Spec(
        "counter",
        "Tests of the endpoint that were answered with 200: GET, HEAD, or an empty POST without an OTLP "
        "content type. They are not counted as deliveries.",
        ("drain",),
    ),
    "failed_answers_past_hour": Spec(
        "gauge_sum",
        "Deliveries of the past hour without a 2xx, but for 401, 403 and 405. What is answered before its "
        "path is known, as 404, counts for no drain. Platforms give a drain up at 50.",
        ("drain",),
    ),
    "failed_answers_past_hour_ratio": Spec(
        "gauge_sum", "Their share of all deliveries but those. Platforms give a drain up at 0.8.", ("drain",)
    ),
    "failure_budget_answers_left": Spec(
        "gauge_sum", "How many more may fail within the hour: `budget.failed_answers_max`.", ("drain",)
    ),
    "failure_budget_counts_seconds": Spec(
        "gauge_sum",
        "How long the gauges of the past hour count: from the supervisor's start, an hour at most.",
    ),
    "failure_budget_ratio_left": Spec(
        "gauge_sum", "How much their share may still grow: `budget.failed_ratio_max`.", ("drain",)
    ),
    "freshness_seconds": Spec("seconds", "From a segment's first receipt to its spans being readable."),
    "fsync_seconds": Spec("seconds", "One append to the journal, synced. It bounds what a sender waits."),
    "inflight_bytes": Spec(
        "gauge_sum", "Bytes of bodies being read or decoded. At its limit senders get 503."
    ),
    "ledger_complete_from_seconds": Spec(
        "gauge_sum", "Unix time from which on the ledger misses nothing; 0: nothing ever."
    ),
    "ledger_losses": Spec(
        "gauge_sum",
        "Losses of ledger history that were found at a start and not acknowledged: the lines of "
        "DATA/ledger.lost. Worry about any.",
    ),
    "ledger_spans": Spec(
        "gauge_sum",
        "Spans since the ledger was begun, by what became of them: `received` is the sum of all others, "
        "`journal` those that wait. As `trace-drain ledger` has them, survives restarts, seconds old.",
        ("drain", "outcome"),
    ),
    "process_ends_recent": Spec(
        "gauge_sum",
        "Ends within ten minutes of processes that nobody told to. Worry at 3: it comes up and dies again.",
        ("process",),
    ),
    "process_restarts": Spec("counter", "Processes replaced after they ended or hung.", ("process",)),
    "process_up": Spec("gauge_sum", "1 while the process runs and reports.", ("process",)),
    "redelivery_entries": Spec("gauge_sum", "Deliveries remembered, to recognise those that come again."),
    "redelivery_window_seconds": Spec(
        "gauge_sum",
        "How far back a redelivery is recognised. Worry below `redelivery.window_s`: raise `entries_max`.",
    ),
    "reloads": Spec(
        "counter", "Configurations read again; `refused` left the old one in force.", ("outcome",)
    ),
    "refused_credentials_past_hour": Spec(
        "gauge_sum", "Answers 401 and 403 in the past hour: a wrong secret, or somebody knocking.", ("drain",)
    ),
    "refusals": Spec("counter", "Requests answered with an error or not at all, by verdict.", ("reason",)),
    "span_notes": Spec("counter", "Spans accepted with a warning or rejected, by reason.", ("reason",)),
    "spans_accepted": Spec("counter", "Spans promised to be stored.", ("drain",)),
    "spans_dead_lettered": Spec("counter", "Accepted spans in segments that were set aside.", ("cause",)),
    "spans_duplicate": Spec("counter", "Spans of those duplicate deliveries, all of them.", ("drain",)),
    "spans_received": Spec(
        "counter",
        "Spans in deliveries made durable, even if the answer came too late.",
        ("drain",),
    ),
    "spans_rejected": Spec(
        "counter", "Spans refused one by one. Told to the sender in partial_success.", ("drain",)
    ),
    "spans_sampled_out": Spec("counter", "Spans dropped by the sampling policy.", ("drain",)),
    "spans_unresolved": Spec("counter", "Accepted spans for which no project was found.", ("drain",)),
    "store_alarms": Spec("counter", "What the writer could not mend alone. Worry about any."),
    "store_inserts": Spec("counter", "INSERTs sent."),
    "store_spans": Spec("counter", "Spans whose rows were counted in the store."),
    "store_troubles": Spec("counter", "Errors of the store, by what they mean.", ("fault",)),
}
"""The typed list. A name that is not here is an error at its call site (mypy) and at run time."""


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One metric with one set of label values, as one process saw it."""

    name: str
    labels: tuple[str, ...]
    value: float
    """Of a histogram: the sum of what was observed."""
    buckets: tuple[int, ...] = ()
    """Of a histogram: observations by bucket, not accumulated."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything one process has counted."""

    process: str
    series: tuple[Series, ...]


class Count:
    """The value of one series, held by who changes it often."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Durations(Count):
    """One histogram."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        super().__init__()
        self.buckets = [0] * (len(SECONDS_BUCKETS) + 1)

    def observe(self, seconds: float) -> None:
        """Put one duration in."""
        self.buckets[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self.value += seconds


class Metrics:
    """What one process has counted since it started."""

    def __init__(self, process: str = "") -> None:
        self._process = process
        self._counts: dict[tuple[str, ...], Count] = {}

    def count(self, name: MetricName, **labels: str) -> Count:
        """Give one series. Labels are given in the order they are declared in."""
        key = (name, *labels.values())
        found = self._counts.get(key)
        if found is None:
            _check(name, labels)
            found = self._counts[key] = Durations() if spec_of(name).kind == "seconds" else Count()
        return found

    def add(self, name: MetricName, value: float = 1, **labels: str) -> None:
        """Count."""
        self.count(name, **labels).value += value

    def set(self, name: MetricName, value: float, **labels: str) -> None:
        """Say how it stands now."""
        self.count(name, **labels).value = value

    def durations(self, name: MetricName) -> Durations:
        """Give one histogram."""
        found = self.count(name)
        if not isinstance(found, Durations):
            raise TypeError(f"metric '{name}' is no histogram; expected one of kind 'seconds'")
        return found

    def observe(self, name: MetricName, seconds: float) -> None:
        """Put one duration into its histogram."""
        self.durations(name).observe(seconds)

    def begin(self, drains: Sequence[str]) -> None:
        """Have every counter whose labels are known be there, as 0: the first step shall be seen."""
        for name, spec in METRICS.items():
            if spec.kind == "counter" and not spec.labels:
                self.count(name)
            elif spec.kind == "counter" and spec.labels == ("drain",):
                for drain in drains:
                    self.count(name, drain=drain)

    def snapshot(self) -> Snapshot:
        """Freeze what was counted, for the supervisor."""
        return Snapshot(
            process=self._process,
            series=tuple(
                Series(
                    key[0],
                    key[1:],
                    one.value,
                    tuple(one.buckets) if isinstance(one, Durations) else (),
                )
                for key, one in self._counts.items()
            ),
        )


def carried_over(ended: Snapshot, before: Snapshot | None) -> Snapshot:
    """What stays counted of a process that ended: its counters and histograms, added to those before it."""
    lasting = [one for one in ended.series if not spec_of(one.name).kind.startswith("gauge")]
    merged = added_up([*(before.series if before else ()), *lasting])
    return Snapshot(process=ended.process, series=tuple(merged.values()))


def _check(name: MetricName, labels: dict[str, str]) -> None:
    declared = spec_of(name).labels
    if tuple(labels) != declared:
        raise ValueError(f"metric '{name}' got the labels {tuple(labels)}; expected {declared}")


def spec_of(name: str) -> Spec:
    """What a name means."""
    spec = METRICS.get(name)  # type: ignore[call-overload]  # a name off the channel is any text
    if spec is None:
        raise ValueError(f"metric '{name}' is not in the list; expected one of receiver.metrics.METRICS")
    found: Spec = spec
    return found


def added_up(series: Iterable[Series]) -> dict[tuple[str, tuple[str, ...]], Series]:
    """Add up the series that have the same name and labels."""
    merged: dict[tuple[str, tuple[str, ...]], Series] = {}
    for one in series:
        key = (one.name, one.labels)
        if key in merged:
            other = merged[key]
            buckets = tuple(a + b for a, b in zip(one.buckets, other.buckets, strict=True))
            merged[key] = Series(one.name, one.labels, one.value + other.value, buckets)
        else:
            merged[key] = one
    return merged
