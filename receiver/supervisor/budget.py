"""Failure budget: failed deliveries per drain in the past hour, computed from the merged counters.

Platforms e-mail the owner and mark a drain as errored after 50 failed deliveries in an hour, or when 80 % of
them fail. A delivery failed if the status was not 2xx or the connection closed before the answer. 3xx counts
too, because no platform follows redirects. 401 and 403 are counted apart, because the sender may be a
stranger. OPTIONS (204), other methods (405) and requests for unknown drains are not deliveries. Refused
requests of every kind are also counted, for the page of the receiver.

Invariant: the window is one hour of monotonic time, exact to a minute. Replacing a process loses no counts; a
new supervisor starts at zero, and `failure_budget_counts_seconds` reports how long it has counted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from receiver.metrics import METRICS, Metrics, Snapshot
from receiver.settings import Budget

HOUR_S = 3_600
MARK_S = 60
"""Interval between two samples, which is the precision of the window."""
CREDENTIALS = frozenset({"401", "403"})
NO_DRAIN = ""
"""Label of requests that match no drain."""
NO_DELIVERIES = frozenset({"204", "405"})


class Answers(NamedTuple):
    all: float = 0
    """All deliveries except those with wrong credentials."""
    failed: float = 0
    refused: float = 0
    """Requests with wrong credentials, which may come from any client on the network."""
    not_2xx: float = 0
    """Requests with any other answer than 2xx, including those that are not deliveries."""

    def plus(self, status: str, count: float) -> Answers:
        """Return the counts with `count` more answers of this status."""
        failed = 0 if status.startswith("2") else count
        counts = self._replace(not_2xx=self.not_2xx + failed)
        if status in NO_DELIVERIES:
            return counts
        if status in CREDENTIALS:
            return counts._replace(refused=self.refused + count)
        return counts._replace(all=self.all + count, failed=self.failed + failed)

    def minus(self, other: Answers) -> Answers:
        return Answers(*(now - before for now, before in zip(self, other, strict=True)))


class FailureBudget:
    """Samples of the counters, one a minute, for the past hour."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun_s = now()
        self._marks: deque[tuple[float, Mapping[str, Answers]]] = deque([(now(), {})])

    def mark(self, snapshots: Iterable[Snapshot]) -> None:
        """Record a sample. Call it every `MARK_S`."""
        self._marks.append((self._now(), answers_of(snapshots)))
        # Keeps the newest sample that is at least an hour old, so that the window covers the whole hour.
        while len(self._marks) > 1 and self._marks[1][0] <= self._now() - HOUR_S:
            self._marks.popleft()

    def past_hour(self, snapshots: Iterable[Snapshot]) -> dict[str, Answers]:
        """Return the answers per drain in the past hour, or since the start."""
        _, before = self._marks[0]
        return {
            # A drain that a reload added is missing in the older sample.
            drain: answers.minus(before.get(drain, Answers()))
            for drain, answers in answers_of(snapshots).items()
        }

    def report(self, metrics: Metrics, snapshots: Iterable[Snapshot], limits: Budget) -> None:
        metrics.set("failure_budget_counts_seconds", min(HOUR_S, self._now() - self._begun_s))
        for drain, answers in self.past_hour(snapshots).items():
            metrics.set("refused_requests_past_hour", answers.not_2xx, drain=drain)
            if drain == NO_DRAIN:
                continue
            # A drain without deliveries has failed none.
            ratio = answers.failed / max(answers.all, 1)
            metrics.set("failed_answers_past_hour", answers.failed, drain=drain)
            metrics.set("failed_answers_past_hour_ratio", ratio, drain=drain)
            metrics.set(
                "failure_budget_answers_left", max(0, limits.failed_answers_max - answers.failed), drain=drain
            )
            metrics.set("failure_budget_ratio_left", max(0, limits.failed_ratio_max - ratio), drain=drain)
            metrics.set("refused_credentials_past_hour", answers.refused, drain=drain)


def answers_of(snapshots: Iterable[Snapshot]) -> dict[str, Answers]:
    """Return the total answers of each drain, and those of requests that match no drain."""
    labels = METRICS["deliveries"].labels
    totals: dict[str, Answers] = defaultdict(Answers)
    for snapshot in snapshots:
        for series in snapshot.series:
            if series.name == "deliveries":
                label = dict(zip(labels, series.labels, strict=True))
                totals[label["drain"]] = totals[label["drain"]].plus(label["status"], series.value)
    return dict(totals)
