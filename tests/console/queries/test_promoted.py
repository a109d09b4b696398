"""Filters and counts of promoted attributes agree with plain Python in new, altered and merged tables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.config.promoted import promoted_attributes
from receiver.console.queries.comparison.shifts import Sides, shift_rows
from receiver.console.queries.filters.filter import Attribute, Exists, HasSpan, Not, Scope
from receiver.console.queries.filters.filter_sql import compiled
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.limits import TRACES_MAX
from receiver.console.queries.search import SearchQuery, search
from receiver.engine import promoted, schema
from receiver.engine.sql_text import Sql
from receiver.engine.store import Store, Version
from receiver.time_range import TimeRange
from tests.support import engines
from tests.support.answers import Row, ask, rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.fake_clickhouse import schema_sources
from tests.support.filter_writers import as_text
from tests.support.random_filters import NOW_S, Matches, Span, expected_summaries, insert, random_span
from tests.support.random_trees import random_attribute_test, value_matches

SPANS = 1_200
PROMOTED = promoted_attributes(("span:app.tenant app.customer app.org", "resource:app.cell"))
SPELLINGS = {
    ("span", "http.request.method"): ("http.request.method", "http.method"),
    ("span", "app.tenant"): ("app.tenant", "app.customer", "app.org"),
    ("resource", "deployment.environment.name"): ("deployment.environment.name", "deployment.environment"),
}
KEYS = (
    "http.request.method",
    "http.method",
    "http.route",
    "app.tenant",
    "app.org",
    "app.cell",
    "deployment.environment.name",
    "deployment.environment",
    "exception.type",
)
VALUES = ("", "web", "500", "499.5", "-3", "/api/users/7", "a_b%c", "été\n", "GET /api/1")


def random_attributes(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(VALUES) for key in KEYS if rng.random() < 0.3}


def random_row(rng: random.Random, number: int) -> Span:
    span = random_span(rng, number)
    changed = {name: random_attributes(rng) for name in ("SpanAttributes", "ResourceAttributes")}
    return {**span, **changed, "Events.Attributes": [random_attributes(rng) for _ in span["Events.Name"]]}


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(17)
    return [random_row(rng, number) for number in range(SPANS)]


@pytest.fixture(scope="module", params=["new", "altered", "merged", "older engine", engines.SERVER])
def store(request: pytest.FixtureRequest, spans: Sequence[Span]) -> Iterator[Store]:
    """A table with promoted attributes; half of the spans are older than the columns, unless it is new."""
    name = f"promoted_{uuid4().hex}"
    store = (
        engines.connected(request.getfixturevalue("server_url"), database=name)
        if request.param == "server"
        else engines.bare(request.getfixturevalue("engine_dir"), name)
    )
    schema.apply(store, schema_sources(), 30)
    first = 0 if request.param == "new" else SPANS // 2
    if first:
        insert(store, spans[:first])
    if request.param == "older engine":
        promoted.add(store, promoted.definitions(PROMOTED, Version(24, 3)))
    schema.apply(store, schema_sources(), 30, PROMOTED)
    insert(store, spans[first:])
    if request.param == "merged":
        store.command("OPTIMIZE TABLE otel_traces FINAL")
    yield store
    store.command(f"DROP DATABASE {name}")
    store.close()


@pytest.fixture(scope="module")
def plain_store(engine_dir: Path, spans: Sequence[Span]) -> Iterator[Store]:
    """A table without promoted attributes."""
    store = engines.bare(engine_dir, f"promoted_{uuid4().hex}")
    schema.apply(store, schema_sources(), 30)
    insert(store, spans)
    yield store
    store.command("DROP TABLE otel_traces")
    store.close()


def values_of(span: Span, scope: str, key: str) -> list[str]:
    if scope == "event":
        return [event[key] for event in span["Events.Attributes"] if key in event]
    if not scope:
        return values_of(span, "span", key) or values_of(span, "resource", key)
    attributes = span["SpanAttributes" if scope == "span" else "ResourceAttributes"]
    spellings = SPELLINGS.get((scope, key), (key,))
    return [attributes[spelling] for spelling in spellings if spelling in attributes][:1]


def random_filter(rng: random.Random, keys: Sequence[str]) -> tuple[str, Matches]:
    scopes: list[Scope] = ["", "", "span", "resource", "event"]
    attribute = Attribute(rng.choice(scopes), rng.choice(keys))
    term, is_negated = random_attribute_test(rng, attribute, "spans"), rng.random() < 0.3

    def matches(span: Span) -> bool:
        found = values_of(span, attribute.scope, attribute.key)
        return any(isinstance(term, Exists) or value_matches(term, value) for value in found) != is_negated

    return as_text(Not(term) if is_negated else term, rng), matches


def found(store: Store, text: str) -> dict[str, Row]:
    wanted = SearchQuery(HasSpan(parse_filter(text)), limit=TRACES_MAX)
    return {row["trace_id"]: row for row in rows_of(search(store, wanted, now_s=NOW_S).pieces())}


@pytest.mark.random_cases
def test_random_filters_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(23)
    counts = []
    # Half of the cases for each of the tables.
    for _ in range(RANDOM_CASES // 2):
        text, matches = random_filter(rng, KEYS)

        traces = found(store, text)

        assert traces.keys() == expected_summaries(spans, matches).keys(), text
        counts.append(len(traces))
    assert sum(map(bool, counts)) > RANDOM_CASES / 4


@pytest.mark.random_cases
def test_filters_give_the_same_result_without_columns(plain_store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(29)
    for _ in range(RANDOM_CASES):
        text, matches = random_filter(rng, [key for key in KEYS if ("span", key) not in SPELLINGS])
        if "deployment" not in text:
            assert found(plain_store, text).keys() == expected_summaries(spans, matches).keys(), text


@each_case("key", [*KEYS, "absent.key"])
def test_values_are_counted_by_scope(store: Store, spans: Sequence[Span], key: str) -> None:
    rows = ask(store, "attributes", since="1d", key=key)

    expected = Counter(
        (scope, value)
        for span in spans
        for scope in ("span", "resource")
        for value in values_of(span, scope, key)
    )
    assert {(row["scope"], row["value"]): row["spans"] for row in rows} == expected
    assert {row["key"] for row in rows} <= {key}


@each_case(
    "text",
    [
        "http.route=/x",
        "http.route!=/x",
        "span.http.route exists",
        'resource.http.route=~"^a"',
        "http.response.status_code>=500",
        "-resource.cloud.region=x",
        "span.cloud.region=x",
        "app.tenant=*x",
        "event.exception.type!=x",
    ],
)
def test_filter_for_a_promoted_attribute_reads_no_map_of_all_attributes(
    store: Store, plain_store: Store, text: str
) -> None:
    tree = parse_filter(text)

    assert "Attributes" not in compiled(store, tree).sql
    assert "Attributes" in compiled(plain_store, tree).sql


def test_shifts_count_every_spelling_of_a_key(store: Store, spans: Sequence[Span]) -> None:
    selected = [span for span in spans if "http.method" in span["SpanAttributes"]]
    sides = Sides(
        Sql("mapContains(SpanAttributes, 'http.method')"),
        Sql("1"),
        TimeRange(since_s=30 * 86_400).parameters(NOW_S),
        len(selected),
        len(spans) - len(selected),
    )

    rows = [*shift_rows(store, sides, 1_000)]

    found = {row["value"]: row["selection"] for row in rows if row["key"] == "http.request.method"}
    assert len(found) > 3
    for value, count in found.items():
        values = [values_of(span, "span", "http.request.method") for span in selected]
        assert count == values.count([value]), value
    assert "http.method" not in {row["key"] for row in rows}
