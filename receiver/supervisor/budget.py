"""How much of a drain's patience is spent: its failed answers of the past hour, out of the merged counts.

Platforms e-mail the owner and mark a drain as errored after 50 failed deliveries in an hour, or when 80 % of
them fail. A delivery failed when it was answered anything but 2xx, or not at all because its connection ended
first: 3xx too, for no platform follows it. Apart: 401 and 403, since whoever gets them may be a stranger. No
deliveries: OPTIONS (204), other methods (405), and requests that name no drain.

Keeps: an hour of our own monotonic time, exact to a minute. A process that is replaced loses nothing of it;
a new supervisor begins at nothing, and `failure_budget_counts_seconds` says how long it has counted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from receiver.metrics import METRICS, Metrics, Snapshot
from receiver.settings import Budget

HOUR_S = 3_600
MARK_S = 60
"""Between two marks: how exact the hour is."""
CREDENTIALS = frozenset({"401", "403"})
NO_DELIVERIES = frozenset({"204", "405"})


class Answers(NamedTuple):
    """What became of one drain's deliveries."""

    all: float = 0
    """But those refused for credentials."""
    failed: float = 0
    refused: float = 0
    """For credentials: somebody else may be knocking."""

    def plus(self, status: str, count: float) -> Answers:
        """Count answers of one status."""
        if status in NO_DELIVERIES:
            return self
        if status in CREDENTIALS:
            return self._replace(refused=self.refused + count)
        failed = 0 if status.startswith("2") else count
        return self._replace(all=self.all + count, failed=self.failed + failed)

    def minus(self, other: Answers) -> Answers:
        """Leave out what was counted before."""
        return Answers(self.all - other.all, self.failed - other.failed, self.refused - other.refused)


class FailureBudget:
    """Remembers what was counted a minute at a time, for an hour."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun_s = now()
        self._marks: deque[tuple[float, Mapping[str, Answers]]] = deque([(now(), {})])

    def mark(self, snapshots: Iterable[Snapshot]) -> None:
        """Remember how things stand. To be called every `MARK_S`."""
        self._marks.append((self._now(), answers_of(snapshots)))
        while len(self._marks) > 1 and self._marks[1][0] <= self._now() - HOUR_S:
            self._marks.popleft()

    def past_hour(self, snapshots: Iterable[Snapshot]) -> dict[str, Answers]:
        """Count per drain what was answered since an hour ago, or since the start."""
        _, before = self._marks[0]
        return {
            drain: found.minus(before.get(drain, Answers())) for drain, found in answers_of(snapshots).items()
        }

    def tell(self, metrics: Metrics, snapshots: Iterable[Snapshot], limits: Budget) -> None:
        """Set the gauges."""
        metrics.set("failure_budget_counts_seconds", min(HOUR_S, self._now() - self._begun_s))
        for drain, found in self.past_hour(snapshots).items():
            ratio = found.failed / max(found.all, 1)
            metrics.set("failed_answers_past_hour", found.failed, drain=drain)
            metrics.set("failed_answers_past_hour_ratio", ratio, drain=drain)
            metrics.set(
                "failure_budget_answers_left", max(0, limits.failed_answers_max - found.failed), drain=drain
            )
            metrics.set("failure_budget_ratio_left", max(0, limits.failed_ratio_max - ratio), drain=drain)
            metrics.set("refused_credentials_past_hour", found.refused, drain=drain)


def answers_of(snapshots: Iterable[Snapshot]) -> dict[str, Answers]:
    """Add up the answers to each drain. Requests that name no drain spend nobody's patience."""
    labels = METRICS["deliveries"].labels
    totals: dict[str, Answers] = defaultdict(Answers)
    for snapshot in snapshots:
        for one in snapshot.series:
            if one.name == "deliveries":
                named = dict(zip(labels, one.labels, strict=True))
                totals[named["drain"]] = totals[named["drain"]].plus(named["status"], one.value)
    totals.pop("", None)
    return dict(totals)
