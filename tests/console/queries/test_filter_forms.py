"""A filter tree written in any form parses to the same tree and matches the same spans as in Python."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from receiver.console.queries.export import parse_export
from receiver.console.queries.filters.filter import HasSpan, TraceFilter
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.console.queries.limits import TRACES_MAX
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.search import SearchQuery, search
from receiver.engine.store import Store
from receiver.errors import InvalidFilter
from tests.support.answers import rows_of
from tests.support.cases import RANDOM_CASES, each_case
from tests.support.filter_writers import as_json, as_text, as_traceql
from tests.support.random_filters import NOW_S, TRACES, Span, random_span
from tests.support.random_trees import Form, random_trace_tree, traces_that_match

SPANS = 2_000
WRITE: dict[Form, Callable[[TraceFilter, random.Random], str]] = {
    "text": as_text,
    "json": as_json,
    "traceql": as_traceql,
}


def parse(form: Form, text: str) -> TraceFilter:
    return parse_traceql(text) if form == "traceql" else parse_any_form(text)


def random_written(rng: random.Random, form: Form) -> tuple[str, TraceFilter]:
    """Return a tree that is within the limits, and its text."""
    while True:
        tree = random_trace_tree(rng, form)
        text = WRITE[form](tree, rng)
        try:
            parse(form, text)
        except InvalidFilter as error:
            if "has over" not in error.problem:
                raise
        else:
            return text, tree


CONDITION = {
    "all": [
        {"field": "service", "op": "=", "value": "web"},
        {"not": {"scope": "span", "attribute": "key", "op": "exists"}},
    ]
}


def test_every_query_with_a_filter_reads_both_forms() -> None:
    expected, written = parse_filter("service=web -span.key exists"), json.dumps(CONDITION)
    for name, question in QUESTIONS.items():
        if "filter" in question.parameter_names and not question.filters_traces:
            required = {each.name: each.name for each in question.parameters if each.is_required}

            assert question.parse({**required, "filter": written}).filter == expected, name
    assert parse_export({"filter": written}).filter == expected


@each_case(
    ("condition", "message"),
    [
        ({"span": CONDITION}, "filter, \\$: a spanset makes a condition on traces"),
        ({"not": {"span": CONDITION}}, "filter, \\$: a spanset makes a condition on traces"),
        ({"field": "trace:spans", "op": ">", "value": 3}, "filter, \\$.*: this is a field of the trace"),
    ],
)
def test_condition_on_traces_is_refused_by_a_query_of_spans(condition: object, message: str) -> None:
    with pytest.raises(InvalidFilter, match=message):
        QUESTIONS["spans"].parse({"filter": json.dumps(condition)})


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(17)
    made = [random_span(rng, number) for number in range(SPANS)]
    return made + made[:50]  # spans that two senders sent


def found(store: Store, tree: TraceFilter) -> dict[str, dict[str, Any]]:
    pieces = search(store, SearchQuery(tree, limit=TRACES_MAX), now_s=NOW_S).pieces()
    return {row["trace_id"]: row for row in rows_of(pieces)}


@pytest.mark.parametrize("form", get_args(Form))
def test_random_tree_is_parsed_from_what_was_written(form: Form) -> None:
    rng = random.Random(23)
    for _ in range(1_000):
        text, tree = random_written(rng, form)

        assert parse(form, text) == tree, text


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.random_cases
def test_random_conditions_on_traces_agree_with_plain_python(
    store: Store, spans: Sequence[Span], form: Form
) -> None:
    rng = random.Random(30)
    counts = []
    for _ in range(RANDOM_CASES):
        text, tree = random_written(rng, form)
        expected = traces_that_match(spans, tree)

        summaries = found(store, parse(form, text))

        assert summaries.keys() == expected.keys(), text
        assert all(summary == pytest.approx(expected[key]) for key, summary in summaries.items()), text
        counts.append(len(summaries))
    assert sum(0 < count < TRACES * 0.8 for count in counts) > RANDOM_CASES / 2


@each_case(
    "text",
    [
        "service=web -trace:spans>2",
        "-(trace:spans>2 status=error)",
        "-(-trace:spans>2) OR -(-(-trace:errors=0))",
        "{-trace:duration>1200s} && -{status=ok}",
        "-{trace:spans>2}",
        '{"attribute": "n.x", "op": "!=", "value": 0.5}',
        '{"attribute": "n.x", "op": "=", "value": 500}',
    ],
)
def test_negated_field_of_a_trace_and_number_agree_with_plain_python(
    store: Store, spans: Sequence[Span], text: str
) -> None:
    tree = parse_any_form(text)
    expected = traces_that_match(spans, tree).keys()

    assert 0 < len(expected) < TRACES
    assert found(store, tree).keys() == expected


def test_text_without_braces_is_a_single_spanset(store: Store, spans: Sequence[Span]) -> None:
    bare = parse_any_form("status=error service=web")

    assert isinstance(bare, HasSpan)
    assert bare == parse_any_form("{status=error service=web}")
    assert found(store, bare).keys() == traces_that_match(spans, bare).keys()


def test_examples_of_the_documentation_are_valid() -> None:
    page = (Path(__file__).parents[3] / "docs" / "query.md").read_text()
    lines = re.findall(r"^trace-drain search '([^']*)'", page, re.MULTILINE)
    documents = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    queries = re.findall(r"```\n(\{ resource.*?)```", page, re.DOTALL)

    assert (len(lines), len(documents), len(queries)) == (8, 1, 1)
    for text in lines + documents:
        assert parse_any_form(text)
    assert parse_traceql(queries[0])
