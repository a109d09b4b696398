"""SQL of operators on rollups: sums count each span once, however often an hour was derived."""

from __future__ import annotations

import json
import random

import pytest

from receiver.console.queries.raw_sql import client_statement
from receiver.console.queries.raw_sql.client_statement import ClientStatement
from receiver.console.queries.raw_sql.statement import parse_sql, sql
from receiver.console.queries.rollup.derivation import Closing, derive
from receiver.console.queries.rollup.slots import read_slots
from receiver.console.queries.rollup.tables import ATTRIBUTE_TABLES, HOUR_S
from receiver.engine.store import Store
from tests.support.random_filters import NOW_S, Span, insert
from tests.support.rollups import MIDNIGHT_S, derive_all, is_request, span_at

LATER = Closing(NOW_S + 601, 600)
SUM = "SELECT sum(r.Spans) FROM {} AS r"
REPEATED = "SELECT count() - uniqExact(Hour, ProjectId, Source, Key, {}) FROM {}"


@pytest.fixture(autouse=True)
def superseded_rows_stay(store: Store) -> None:
    for table in ("otel_red", "otel_red_deployment", *ATTRIBUTE_TABLES):
        store.command(f"SYSTEM STOP MERGES {table}")


def number(store: Store, text: str) -> int:
    """Return the value that a statement returns over the API and over the port for ClickHouse's clients."""
    lines = b"".join(sql(store, parse_sql({"query": text})).pieces()).splitlines()
    for_client = b"".join(client_statement.answer(store, ClientStatement(text, "JSONEachRow")))
    assert json.loads(for_client) == json.loads(lines[0])
    return int(next(iter(json.loads(lines[0]).values())))


def test_sums_of_sql_count_late_spans_once_and_deleted_spans_not_at_all(
    store: Store, spans: list[Span]
) -> None:
    rng = random.Random(50)
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


@pytest.mark.usefixtures("spans")
def test_sql_reads_each_attribute_once_and_without_the_total_rows(store: Store) -> None:
    once = {table: number(store, SUM.format(table)) for table in ATTRIBUTE_TABLES}
    for hour in [*read_slots(store, 0, LATER.hour_end)][:2]:
        derive(store, [hour], LATER)

    for table, value in zip(ATTRIBUTE_TABLES, ("1", "Value"), strict=True):
        assert number(store, SUM.format(table)) == once[table], table
        assert number(store, REPEATED.format(value, table)) == 0, table
        assert store.rows(SUM.format(table))[0][0] > 2 * once[table], table
