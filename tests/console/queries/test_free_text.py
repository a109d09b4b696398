"""Searches for texts without a field: which texts of a span they read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.console.queries.filters.filter_text import parse_trace_filter
from receiver.console.queries.search import SearchQuery, search
from receiver.engine.store import Store
from tests.support import engines
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Span, as_row, random_span

NO_TEXTS: Span = {"SpanName": "", "StatusMessage": "", "SpanAttributes": {}, "ResourceAttributes": {}}
NO_EVENTS: Span = {"Events.Timestamp": [], "Events.Name": [], "Events.Attributes": []}
NAMED: dict[str, Span] = {
    "operation": {"SpanName": "GET /Card/decline"},
    "status message": {"StatusMessage": "card 12 DECLINED"},
    "promoted": {"SpanAttributes": {"http.route": "/card"}},
    "promoted of the resource": {"ResourceAttributes": {"cloud.region": "card-1"}},
    "other attribute": {"SpanAttributes": {"note": "card"}},
    "exception": {
        "Events.Timestamp": [0],
        "Events.Name": ["exception"],
        "Events.Attributes": [{"exception.type": "CardError", "exception.message": "was 50% declined"}],
    },
    "event": {"Events.Timestamp": [0], "Events.Name": ["card"], "Events.Attributes": [{"note": "card"}]},
    "nothing": {},
}
"""Name → what a span has instead of no text."""


@pytest.fixture(scope="module")
def store(engine_dir: Path) -> Iterator[Store]:
    spans: list[Span] = [
        random_span(random.Random(1), number) | NO_TEXTS | NO_EVENTS | {"TraceId": f"{number:032x}"} | texts
        for number, texts in enumerate(NAMED.values())
    ]
    with engines.embedded(engine_dir) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(as_row, spans)))
        yield store


def found(store: Store, text: str) -> set[str]:
    pieces = search(store, SearchQuery(parse_trace_filter(text)), now_s=NOW_S).pieces()
    names = list(NAMED)
    return {names[int(json.loads(line)["trace_id"], 16)] for line in b"".join(pieces).splitlines()}


@each_case(
    ("text", "names"),
    [
        ("card", {"operation", "status message", "promoted", "promoted of the resource", "exception"}),
        ("card declined", {"status message", "exception"}),
        ("card 12 declined", {"status message"}),
        ("carderror", {"exception"}),
        ('"50% declined"', {"exception"}),
        ("text=get*decline", {"operation"}),
        ("text:all=card", set(NAMED) - {"nothing"}),
        ("-text:all=card", {"nothing"}),
        ("text!=card", {"other attribute", "event", "nothing"}),
        ("0_", set()),
        ("0000000000000003", {"promoted of the resource"}),
        ("00000000000000000000000000000002", {"promoted"}),
    ],
)
def test_text_is_searched_in_the_texts_of_a_span(store: Store, text: str, names: set[str]) -> None:
    assert found(store, text) == names
