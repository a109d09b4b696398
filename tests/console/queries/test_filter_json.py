"""Tests of filters as JSON: the path in each error, and the parsed trees.

`test_filter_forms` parses random trees in every form; the cases here are other ways to write them.
"""

from __future__ import annotations

import json

import pytest

from receiver.console.queries.filters.filter import (
    And,
    Attribute,
    Comparison,
    Exists,
    HasSpan,
    Intrinsic,
    Not,
    TraceAnd,
    TraceFilter,
    TraceNot,
)
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.filter_json import is_json, parse_json_filter
from receiver.console.queries.filters.filter_values import (
    DEPTH_MAX,
    JSON_CHARACTERS_MAX,
    REGEX_CHARACTERS_MAX,
    TERMS_MAX,
    TRACE_TERMS_MAX,
)
from receiver.errors import InvalidFilter
from tests.support.cases import each_case

WEB = Comparison(Intrinsic("service"), "=", "web")
WEB_JSON = {"field": "service", "op": "=", "value": "web"}
HTTP = {"attribute": "http.route", "op": "=", "value": "/api/*"}
ROUTE = Attribute("", "http.route")
EXISTS = {"attribute": "k", "op": "exists"}
HAS_K = Exists(Attribute("", "k"))


@each_case(
    ("document", "tree"),
    [
        (WEB_JSON, HasSpan(WEB)),
        ({"all": []}, HasSpan(And(()))),
        ({"span": {"not": WEB_JSON}}, HasSpan(Not(WEB))),
        ({"not": {"span": WEB_JSON}}, TraceNot(HasSpan(WEB))),
        ({"all": [{"span": WEB_JSON}, {"span": {"all": []}}]}, TraceAnd((HasSpan(WEB), HasSpan(And(()))))),
        (HTTP, HasSpan(Comparison(ROUTE, "=", "/api/*"))),
        ({"attribute": "k", "op": "=", "value": 200}, HasSpan(Comparison(HAS_K.field, "=", 200.0))),
        ({"attribute": "k", "op": "=", "value": True}, HasSpan(Comparison(HAS_K.field, "=", "true"))),
        ({"attribute": "k", "op": ">=", "value": -1e20}, HasSpan(Comparison(HAS_K.field, ">=", -1e20))),
        ({"field": "root", "op": "=", "value": False}, HasSpan(Comparison(Intrinsic("root"), "=", ""))),
        (
            {"field": "duration", "op": ">", "value": "2m"},
            HasSpan(Comparison(Intrinsic("duration"), ">", 120 * 10**9)),
        ),
    ],
)
def test_json_is_parsed_to_a_tree(document: object, tree: TraceFilter) -> None:
    assert parse_any_form(json.dumps(document, indent=1)) == tree


def nested(key: str, depth: int) -> object:
    node: object = WEB_JSON
    for _ in range(depth):
        node = {"not": node} if key == "not" else {key: [node]}
    return node


@each_case(
    ("document", "path", "problem"),
    [
        ({"al": []}, "$", "did you mean 'all'?"),
        (
            {"all": [WEB_JSON, {"not": {"any": [HTTP, {}]}}]},
            "$.all[1].not.any[1]",
            "either field or attribute",
        ),
        ({"all": {}}, "$.all", "expected a list"),
        ({"any": []}, "$.any", "the list is empty"),
        ({"all": [], "any": [WEB_JSON]}, "$", "the only key"),
        ({"not": WEB_JSON, "op": "="}, "$", "the only key"),
        ({"not": []}, "$.not", "expected an object"),
        ({"all": [1]}, "$.all[0]", "expected an object"),
        ({"all": [{"span": WEB_JSON}, WEB_JSON]}, "$.all[1]", "put it in"),
        ({"not": {"any": [{"span": WEB_JSON}, {"not": WEB_JSON}]}}, "$.not.any[1]", "put it in"),
        ({"span": {"not": {"span": WEB_JSON}}}, "$.span.not", "inside a condition on spans"),
        ({**WEB_JSON, "attribute": "k"}, "$", "either field or attribute"),
        ({**WEB_JSON, "field": "sevice"}, "$.field", "did you mean 'service'?"),
        ({**WEB_JSON, "field": 1}, "$.field", "expected a text"),
        ({**WEB_JSON, "scope": "span"}, "$.scope", "only an attribute"),
        ({**HTTP, "scope": "sapn"}, "$", "a scope of span, resource"),
        ({**HTTP, "attribute": ""}, "$", "an attribute with a key"),
        ({**WEB_JSON, "op": "=="}, "$.op", "expected an operator"),
        ({**WEB_JSON, "op": ["="]}, "$.op", "expected an operator"),
        ({**WEB_JSON, "op": "exists"}, "$.op", "exists with an attribute"),
        ({**EXISTS, "value": "x"}, "$", "exists takes no value"),
        ({**WEB_JSON, "op": ">"}, "$.op", "this field takes"),
        ({**WEB_JSON, "value": None}, "$.value", "expected a text"),
        ({**WEB_JSON, "value": 5}, "$.op", "and a text"),
        ({**WEB_JSON, "value": "a\0"}, "$.value", "NUL"),
        ({**WEB_JSON, "value": "\ud800"}, "$.value", "UTF-8"),
        ({**HTTP, "attribute": "\0"}, "$.attribute", "NUL"),
        ({**WEB_JSON, "wildcard": "x"}, "$", "either value or wildcard"),
        ({"field": "name", "op": "=~", "wildcard": "x"}, "$.op", "a wildcard takes"),
        ({"field": "name", "op": "=", "value": "x", "anchored": True}, "$.anchored", "beside =~ or !~"),
        ({"field": "name", "op": "=~", "value": "x", "anchored": 1}, "$.anchored", "true or false"),
        ({"field": "status", "op": "=", "value": "eror"}, "$.value", "did you mean 'error'?"),
        ({"field": "duration", "op": ">", "value": 5}, "$.value", "not a duration"),
        ({"attribute": "k", "op": ">", "value": 10**40}, "$.value", "not a number"),
        (
            {"field": "name", "op": "=~", "value": "x" * (REGEX_CHARACTERS_MAX + 1)},
            "$.value",
            "regular expression",
        ),
        (nested("not", DEPTH_MAX + 2), "$", "levels"),
        (nested("all", DEPTH_MAX + 2), "$", "levels"),
        ({"all": [EXISTS] * (TERMS_MAX + 1)}, f"$.all[{TERMS_MAX}]", "comparisons"),
        (
            {"all": [{"field": "trace:spans", "op": ">", "value": 1}] * (TRACE_TERMS_MAX + 1)},
            f"$.all[{TRACE_TERMS_MAX}].value",
            "fields of the trace",
        ),
    ],
)
def test_error_has_the_path_and_the_problem(document: object, path: str, problem: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_json_filter(json.dumps(document))

    assert str(refused.value).startswith(f"filter, {path}: ")
    assert problem in str(refused.value)


@each_case(
    ("text", "message"),
    [
        ('{"all": [', "filter, column 10: the JSON is not well-formed"),
        ('{"all": []} x', "filter, column 13: the JSON is not well-formed"),
        ('{"all": [], "all": []}', "filter, $: an object has a key twice"),
        ('{"attribute": "k", "op": ">", "value": Infinity}', "filter, $: NaN and Infinity are not JSON"),
        (
            '{"all": ' + " " * JSON_CHARACTERS_MAX,
            f"filter, column {JSON_CHARACTERS_MAX + 1}: the filter has over",
        ),
    ],
)
def test_malformed_json_is_an_error(text: str, message: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_any_form(text)

    assert str(refused.value).startswith(message)


def test_json_at_every_limit_is_accepted() -> None:
    assert parse_json_filter(json.dumps({"all": [EXISTS] * TERMS_MAX}))
    assert parse_json_filter(json.dumps(nested("not", DEPTH_MAX)))
    assert parse_json_filter(json.dumps({"field": "name", "op": "=~", "value": "x" * REGEX_CHARACTERS_MAX}))


@each_case("text", ['{"odd key"=1}', '{"odd key" exists}', "{}", "", "service=web", '"a:b"=1'])
def test_one_line_filter_is_not_taken_for_json(text: str) -> None:
    assert not is_json(text)
    assert parse_any_form(text)
