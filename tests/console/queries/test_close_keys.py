"""Tests of the attributes that are suggested for a filter which matches nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from receiver.console.queries.filters.close_keys import ATTRIBUTES_MAX, KEY_CHARACTERS_MAX
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.search import SearchQuery, search
from receiver.engine.cluster import ONE_SERVER
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.time_range import TimeRange
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Span, random_span

LONG = "k" * KEY_CHARACTERS_MAX


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Return a span of a minute ago, and another of two hours ago."""
    recent = random_span(random.Random(1), 1) | {
        "start_ns": (NOW_S - 60) * 10**9,
        "SpanAttributes": {
            "http.route": "/a",
            "http.request.method": "GET",
            f"{LONG}x": "1",
            'say "hi"': "1",
        },
        "ResourceAttributes": {"host.name": "web-1", "http.route": "/a"},
    }
    return [recent, recent | {"start_ns": (NOW_S - 7_200) * 10**9, "SpanAttributes": {"old.key": "1"}}]


def suggested(store: Store, text: str, since_s: int = 3_600) -> list[str]:
    answer = search(store, SearchQuery(parse_any_form(text), TimeRange(since_s)), now_s=NOW_S)
    assert b"".join(answer.pieces()) == b""
    return answer.close_keys


@each_case(
    ("text", "expected"),
    [
        ("http.rout=/a", ["span.http.route", "resource.http.route"]),
        ("span.http.method=GET", ["span.http.request.method"]),
        ("span.host.name=web-1", ["resource.host.name"]),
        ("resource.hostname exists", ["resource.host.name"]),
        ("-http.route exists", []),
        ('span."say hi"=x', ['span."say \\"hi\\""']),
        ("http.route=/b", []),
        ("service=absent", []),
        ("zzz.zzz=1", []),
        ("event.http.rout=/a", []),
        ("old.kez=1", []),
        (f"span.{LONG}=1", []),
        (f"span.{LONG}yz=1", []),
        (
            "{service=absent http.rout=/a} && -{resource.host.nam=x}",
            ["span.http.route", "resource.http.route", "resource.host.name"],
        ),
    ],
)
def test_close_keys_that_occur_in_the_time_range_are_suggested(
    store: Store, text: str, expected: list[str]
) -> None:
    assert suggested(store, text) == expected


def test_old_keys_are_suggested_in_a_longer_range(store: Store) -> None:
    assert suggested(store, "old.kez=1", 86_400) == ["span.old.key"]


def test_only_the_first_attributes_of_a_filter_are_compared(store: Store) -> None:
    others = " ".join(f"zzz.{number}=1" for number in range(ATTRIBUTES_MAX))

    assert suggested(store, f"http.rout=/a {others}") != []
    assert suggested(store, f"{others} http.rout=/a") == []


def test_answer_with_a_match_has_no_suggestions(store: Store) -> None:
    answer = search(store, SearchQuery(parse_any_form("http.route=/a OR http.rout=/a")), now_s=NOW_S)

    assert b"".join(answer.pieces())
    assert answer.close_keys == []


class StoreWithoutKeys:
    """Store that finds nothing, and fails when it is asked for keys."""

    definition_version = None
    layout = ONE_SERVER
    receiver = "tests"

    def rows(self, statement: str, _parameters: object = None) -> list[tuple[str]]:
        if "mapKeys" in statement:
            raise StoreTrouble("memory", code=241, name="MEMORY_LIMIT_EXCEEDED")
        return []


def test_failure_to_find_keys_is_no_failure_of_the_search() -> None:
    store: Any = StoreWithoutKeys()

    assert suggested(store, "http.rout=/a") == []
