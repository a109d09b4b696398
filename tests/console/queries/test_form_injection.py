"""Text in a filter of any form never becomes SQL, and no error repeats it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from receiver.console.queries.filters.filter import TraceFilter
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.console.queries.search import SearchQuery, search
from receiver.errors import InvalidFilter
from tests.support.cases import each_case
from tests.support.hostile_filters import HOSTILE, RecordingStore
from tests.support.random_filters import NOW_S, quoted

TEXT = (
    "service={} OR name!={}",
    "project=~{}",
    "http.route={} span.{}=x",
    "resource.{} exists event.{}>5",
    "event:name={} -(link.{}!~x OR trace={})",
    "{{service={}}} && -{{name=~{}}}",
    "{{trace:service={} trace:duration>1s}}",
    "{{span.{}=x}} || {{link.{} exists trace:name!~{}}}",
)
JSON = (
    '{{"field": "service", "op": "=", "value": {}}}',
    '{{"attribute": {}, "scope": "event", "op": "!=", "value": {}}}',
    (
        '{{"all": [{{"span": {{"attribute": {}, "op": "exists"}}}}, {{"not": {{"span": {{"field": "name", '
        '"op": "=~", "value": {}, "anchored": true}}}}}}]}}'
    ),
)
TRACEQL = (
    "{{ name = {} && rootName =~ {} }}",
    "{{ .{} = {} }} || {{ resource.{} = nil }}",
    "{{ !(span.{} != {}) && trace:duration > 1s }}",
)


def statements_of(tree: TraceFilter) -> list[str]:
    recording: Any = RecordingStore()
    list(search(recording, SearchQuery(tree), now_s=NOW_S).pieces())
    return [statement for statement in recording.statements if "otel_traces" in statement]


@each_case("hostile", HOSTILE)
def test_hostile_text_is_only_in_parameters(hostile: str) -> None:
    def filled(shape: str, text: str) -> str:
        return shape.format(*[text] * 4)

    for shape in TEXT:
        expected = statements_of(parse_any_form(filled(shape, quoted("abc"))))
        assert statements_of(parse_any_form(filled(shape, quoted(hostile)))) == expected
    for shape in JSON:
        expected = statements_of(parse_any_form(filled(shape, '"abc"')))
        assert statements_of(parse_any_form(filled(shape, json.dumps(hostile)))) == expected
    for shape in TRACEQL:
        key_and_text = json.dumps(hostile, ensure_ascii=False)
        if "\\u" in key_and_text or "\\n" in key_and_text:
            continue  # keys have no such escapes: see the test of values
        expected = statements_of(parse_traceql(filled(shape, '"abc"')))
        assert statements_of(parse_traceql(filled(shape, key_and_text))) == expected


@each_case("hostile", HOSTILE)
def test_hostile_traceql_value_is_only_in_parameters(hostile: str) -> None:
    expected = statements_of(parse_traceql('{ name = "abc" || rootServiceName !~ "abc" }'))
    text = json.dumps(hostile)

    assert statements_of(parse_traceql(f"{{ name = {text} || rootServiceName !~ {text} }}")) == expected


@each_case("hostile", HOSTILE)
def test_hostile_text_in_place_of_syntax_is_an_error_without_the_text(hostile: str) -> None:
    texts = (
        f"{{{hostile}}}",
        f"{{service=web}} {hostile}",
        json.dumps({hostile: "s3cret"}),
        json.dumps({"field": hostile, "op": "=", "value": "s3cret"}),
        json.dumps({"field": "service", "op": hostile, "value": "s3cret"}),
        json.dumps({"attribute": "k", "scope": hostile, "op": "=", "value": "s3cret"}),
        json.dumps({"field": "status", "op": "=", "value": hostile}),
        '{"all": ' + hostile,
    )
    for text in texts:
        with pytest.raises(InvalidFilter) as refused:
            parse_any_form(text)
        assert hostile not in str(refused.value)
        assert "s3cret" not in str(refused.value)
    # Alone it may be a text to search for.
    with suppress(InvalidFilter):
        assert not [each for each in statements_of(parse_any_form(hostile)) if hostile in each]
    for text in (hostile, f"{{{hostile}}}", f"{{name {hostile} 1}}", f"{{name = `a`}} {hostile}"):
        with pytest.raises(InvalidFilter) as refused:
            parse_traceql(text)
        assert hostile not in str(refused.value)


@each_case(
    "text",
    [
        "(" * 1_999,
        "{" * 1_999,
        "-" * 1_999,
        "{(" * 999,
        "{" + "!" * 1_998,
        "{" + "(" * 1_998,
        '{"not":' * 285,
        '{"all":[' * 240,
        '{"all":' + "[" * 1_990,
        '{"x":' + "9" * 1_990 + "}",
        '{"field":"duration","op":">","value":' + "9" * 1_900 + "}",
        '{"attribute":"k","op":">","value":1e999}',
        '{"attribute":"k","op":">","value":NaN}',
    ],
    ids=lambda text: str(text[:24]),
)
def test_deep_or_huge_filter_is_an_error(text: str) -> None:
    for parse in (parse_any_form, parse_traceql):
        with pytest.raises(InvalidFilter):
            parse(text)
