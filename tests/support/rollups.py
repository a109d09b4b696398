"""Random spans of three days, and rollups of them compared with counts in plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from receiver.console.queries.aggregates.red_source import Wanted, red_source
from receiver.console.queries.rollup.derivation import Closing, Settled, derive_due, survey
from receiver.console.queries.rollup.tables import HOUR_NS, HOURS_OF_DAY, OPERATIONS, ROLLUPS, Rollup
from receiver.engine.store import Parameters, Store
from tests.support.random_filters import NOW_S, Span, random_span

DAY_S = 86_400
HOUR_S = 3_600
CLOSING = Closing(NOW_S, 600)
MIDNIGHT_S = (NOW_S - CLOSING.age_s) // DAY_S * DAY_S - DAY_S
"""Begin of the newest day whose hours are all closed. Just after midnight it is not the day before."""
FROM_NS, TO_NS = (MIDNIGHT_S - DAY_S + 1_800) * 10**9, (NOW_S + HOUR_S) * 10**9
SPANS = 400
ATTEMPTS_MAX = 20
Key = tuple[Any, ...]
Measures = tuple[int, int, float, int, float, float, int, int, tuple[tuple[int, int], ...]]


def span_at(rng: random.Random, number: int, start_s: int, received_s: float) -> Span:
    return random_span(rng, number) | {
        "start_ns": start_s * 10**9 + rng.randrange(10**9),
        "ReceivedAt": f"{received_s:.3f}",
        "SampleWeight": rng.choice([None, 1.0, 2.5]),
        "SpanKind": rng.choice(["Server", "Client", "Internal", "Consumer"]),
    }


def random_spans(rng: random.Random, count: int = SPANS) -> list[Span]:
    starts = [rng.randrange(MIDNIGHT_S - DAY_S, NOW_S) for _ in range(count)]
    return [span_at(rng, number, start_s, start_s + rng.random()) for number, start_s in enumerate(starts)]


def bucket_of(duration: int) -> int:
    return 1 + math.floor(16 * math.log2(duration)) if duration else 0


def is_request(span: Span) -> bool:
    return span["SpanKind"] in {"Server", "Consumer"} or not span["ParentSpanId"]


def expected(
    spans: Sequence[Span], rollup: Rollup, from_ns: int, to_ns: int, *, hours: int = 1
) -> dict[Key, Measures]:
    """Compute the rows of a range in plain Python, by this many hours."""
    groups = defaultdict[Key, list[Span]](list)
    for span in spans:
        if (rollup is OPERATIONS or is_request(span)) and from_ns <= span["start_ns"] < to_ns:
            keys = span | {"IsRequest": int(is_request(span))}
            groups[span["start_ns"] // (HOUR_NS * hours), *(keys[key] for key in rollup.keys)].append(span)
    return {
        key: (
            len(group),
            sum(span["StatusCode"] == "Error" for span in group),
            sum(span["SampleWeight"] or 0 for span in group),
            sum(span["SampleWeight"] is not None for span in group),
            sum(span["SampleWeight"] or 0 for span in group if span["StatusCode"] == "Error"),
            sum((span["SampleWeight"] or 0) * ((span["SampleWeight"] or 1) - 1) for span in group),
            sum(span["Duration"] for span in group),
            max(span["Duration"] for span in group),
            tuple(sorted(Counter(bucket_of(span["Duration"]) for span in group).items())),
        )
        for key, group in groups.items()
    }


def answer(store: Store, wanted: Wanted, slots_min: int, hours: int) -> dict[Key, Measures]:
    """Ask the store for the same; the source reads at least this many slots."""
    rollup = wanted.rollup
    keys = ", ".join(rollup.keys)
    # On a cluster, a merge during a question makes it ask again.
    for _ in range(1 if store.embedded else ATTEMPTS_MAX):
        source = red_source(store, wanted)
        rows = store.rows(
            f"SELECT intDiv(toUnixTimestamp(Hour), 3600 * {hours}) AS hour, {keys}, sum(Spans), sum(Errors), "  # noqa: S608 - ours
            "sum(Weight), sum(WeightedSpans), sum(ErrorWeight), sum(WeightVariance), "
            "toString(sum(DurationSum)), max(DurationMax), sumMap(Buckets, BucketSpans) "
            f"FROM {source.sql} GROUP BY hour, {keys}",
            source.parameters,
        )
        if source.is_unchanged(store):
            break
    else:
        raise AssertionError("the rollup changes all the time")
    assert len(source.slots) >= slots_min
    size = 1 + len(rollup.keys)
    return {
        row[:size]: (
            *row[size : size + 6],
            int(row[size + 6]),
            row[size + 7],
            tuple(zip(*row[size + 8], strict=True)),
        )
        for row in rows
    }


def assert_equal(
    store: Store, spans: Sequence[Span], *, slots_min: int = 0, from_ns: int = FROM_NS, to_ns: int = TO_NS
) -> None:
    for rollup in ROLLUPS:
        for hours in (1, HOURS_OF_DAY):
            wanted = Wanted(from_ns, to_ns, rollup, by_hour=hours == 1)
            assert answer(store, wanted, slots_min, hours) == expected(
                spans, rollup, from_ns, to_ns, hours=hours
            )


def derive_all(store: Store, closing: Closing = CLOSING, settled: Settled | None = None) -> list[int]:
    return [hour for hours in derive_due(store, closing, settled) for hour in hours]


def due_count(store: Store, closing: Closing = CLOSING) -> int:
    return sum(len(report.due) for report in survey(store, closing))


class Killed(Exception):  # noqa: N818 - an event
    """The process was killed."""


class InterleavedStore:
    """Store in which something happens before a statement."""

    definition_version = None

    def __init__(self, store: Store, statement: int, event: Callable[[], object]) -> None:
        self._store = store
        self.layout, self.embedded, self.receiver = store.layout, store.embedded, "another"
        self._event = event
        self.left = statement

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        self.left -= 1
        if self.left == 0:
            self._event()
        return self._store.rows(statement, parameters)


class KilledStore:
    """Store whose process is killed before or after a statement."""

    definition_version = None

    def __init__(self, store: Store, statement: int, *, is_after: bool) -> None:
        self._store = store
        self.layout, self.embedded, self.receiver = store.layout, store.embedded, "another"
        self._left = statement
        self._is_after = is_after

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        self._left -= 1
        if self._left < 0 and not self._is_after:
            raise Killed
        rows = self._store.rows(statement, parameters)
        if self._left < 0:
            raise Killed
        return rows
