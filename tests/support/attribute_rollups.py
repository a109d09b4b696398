"""Questions about attributes in tests of their rollups, and the same counts in plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from receiver.config.promoted import promoted_attributes
from receiver.console.queries.attributes import attributes
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.question import Asked
from receiver.engine.store import Parameters, Store
from receiver.time_range import TimeRange
from tests.support.random_filters import KEYS, NOW_S, Span
from tests.support.rollups import DAY_S, HOUR_S, MIDNIGHT_S, span_at

SPELLINGS = {("span", "k"): ("k", "n.x"), ("resource", "n.x"): ("n.x", "k")}
"""Promoted attributes with older spellings; `http.route` of spans is a standard promoted attribute."""
PROMOTED = promoted_attributes(("span:k n.x", "resource:n.x k"))
COLUMNS = {"span": "SpanAttributes", "resource": "ResourceAttributes"}
ODD_KEY = KEYS[-1]
ROLLUPS = ("otel_attribute_keys", "otel_attribute_values")
DAY_NS = (MIDNIGHT_S * 10**9, (MIDNIGHT_S + DAY_S) * 10**9)
"""A day whose hours are all closed."""
ALL_NS = ((MIDNIGHT_S - DAY_S + 1_800) * 10**9, (NOW_S + HOUR_S) * 10**9)


class ReadTables:
    """Store that records which tables the answers were read from."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads_spans = False
        self.reads_rollup = False
        self.proofs = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of the store
        return getattr(self._store, name)

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        self.proofs += "'late'" in statement
        return self._store.rows(statement, parameters)

    def lines(self, statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        self.reads_spans |= "FROM otel_traces" in statement
        self.reads_rollup |= "FROM otel_attribute" in statement
        return self._store.lines(statement, parameters)


def asked(
    store: Store | ReadTables, key: str | None, bounds: tuple[int, int], text: str = ""
) -> dict[tuple[str, ...], int]:
    """Ask for the keys, or the values of a key."""
    answer = attributes(
        store,
        Asked(
            range=TimeRange(from_at_s=bounds[0] / 1e9, to_at_s=bounds[1] / 1e9),
            limit=100_000,
            filter=parse_filter(text),
            own=key,
        ),
        NOW_S,
    )
    rows = [json.loads(line) for line in b"".join(answer.pieces()).splitlines()]
    counts = {tuple(row[name] for name in row if name != "spans"): row["spans"] for row in rows}
    assert len(counts) == len(rows)
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    return counts


def expected(
    spans: Sequence[Span], key: str | None, bounds: tuple[int, int], project: str = ""
) -> dict[tuple[str, ...], int]:
    """Count in plain Python."""
    counts = Counter[tuple[str, ...]]()
    for span in spans:
        if not bounds[0] <= span["start_ns"] < bounds[1] or project not in {"", span["ProjectId"]}:
            continue
        for scope, column in COLUMNS.items():
            found = span[column]
            if key is None:
                counts.update((scope, name) for name in found)
                continue
            spellings = [name for name in SPELLINGS.get((scope, key), (key,)) if name in found]
            counts.update((scope, key, found[name]) for name in spellings[:1])
    return counts


def assert_equal(store: Store, spans: Sequence[Span], bounds: tuple[int, int] = ALL_NS) -> None:
    for key in (None, *KEYS, "absent"):
        assert asked(store, key, bounds) == expected(spans, key, bounds), key


def tables_of(store: Store, key: str | None, bounds: tuple[int, int] = DAY_NS, text: str = "") -> set[str]:
    """Return the sources of an answer: the spans, the rollup, or both."""
    recorded = ReadTables(store)
    asked(recorded, key, bounds, text)
    tables = {"spans": recorded.reads_spans, "rollup": recorded.reads_rollup}
    return {name for name, is_read in tables.items() if is_read}


def attribute_span(hour: int, number: int, value: str, **changes: object) -> Span:
    start_s = MIDNIGHT_S + hour * HOUR_S + number
    span = span_at(random.Random(number), 10_000 + number, start_s, start_s)
    return span | {"SpanAttributes": {"http.route": value}, "ResourceAttributes": {"host": value}, **changes}
