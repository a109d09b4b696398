"""SQL of operators on rollups: sums count each span once, however often an hour was derived."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.console.queries.raw_sql import client_statement
from receiver.console.queries.raw_sql.client_statement import ClientStatement
from receiver.console.queries.raw_sql.statement import parse_sql, sql
from receiver.console.queries.rollup.derivation import Closing, derive
from receiver.console.queries.rollup.slots import read_slots
from receiver.console.queries.rollup.tables import ATTRIBUTE_TABLES, HOUR_S
from receiver.engine.store import Store
from tests.support import engines
from tests.support.random_filters import NOW_S
from tests.support.rollups import MIDNIGHT_S, derive_all, insert, is_request, random_spans, span_at

LATER = Closing(NOW_S + 601, 600)
SUM = "SELECT sum(r.Spans) FROM {} AS r"
REPEATED = "SELECT count() - uniqExact(Hour, ProjectId, Source, Key, {}) FROM {}"


@pytest.fixture
def store(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        # So that the superseded rows stay.
        for table in ("otel_red", "otel_red_deployment", *ATTRIBUTE_TABLES):
            store.command(f"SYSTEM STOP MERGES {table}")
        yield store


def number(store: Store, text: str) -> int:
    """Return the value that a statement returns over the API and over the port for ClickHouse's clients."""
    lines = b"".join(sql(store, parse_sql({"query": text})).pieces()).splitlines()
    for_client = b"".join(client_statement.answer(store, ClientStatement(text, "JSONEachRow")))
    assert json.loads(for_client) == json.loads(lines[0])
    return int(next(iter(json.loads(lines[0]).values())))


def test_sums_of_sql_count_late_spans_once_and_deleted_spans_not_at_all(store: Store) -> None:
    rng = random.Random(50)
    spans = random_spans(rng)
    insert(store, spans)
    derive_all(store)
    spans += (late := [span_at(rng, 1_000 + n, MIDNIGHT_S + n * 1_000, NOW_S) for n in range(10)])
    insert(store, late)
    # A name that SQL needs no escapes for.
    deleted = next(span["SpanName"] for span in spans if span["SpanName"].isalpha())
    store.command(f"ALTER TABLE otel_traces DELETE WHERE SpanName = '{deleted}' SETTINGS mutations_sync = 1")
    derive_all(store, LATER)
    closed_ns = LATER.hour_end * HOUR_S * 10**9
    left = [span for span in spans if span["SpanName"] != deleted and span["start_ns"] < closed_ns]

    assert number(store, SUM.format("otel_red")) == len(left)
    assert number(store, SUM.format("otel_red_deployment")) == sum(map(is_request, left))
    assert store.rows(SUM.format("otel_red"))[0][0] > len(left)


@pytest.mark.parametrize(
    ("table", "value"), [("otel_attribute_keys", "1"), ("otel_attribute_values", "Value")]
)
def test_sql_reads_each_attribute_once_and_without_the_total_rows(
    store: Store, table: str, value: str
) -> None:
    insert(store, random_spans(random.Random(51), 50))
    derive_all(store)
    once = number(store, SUM.format(table))
    for hour in [*read_slots(store, 0, LATER.hour_end)][:2]:
        derive(store, [hour], LATER)

    assert number(store, SUM.format(table)) == once
    assert number(store, REPEATED.format(value, table)) == 0
    assert store.rows(SUM.format(table))[0][0] > 2 * once
