"""Tests of the text form of filters: the parsed trees, and the column in each error."""

from __future__ import annotations

import pytest

from receiver.console.queries.filters.filter import (
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    Intrinsic,
    Not,
    Or,
    Wildcard,
)
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.filters.filter_values import (
    CHARACTERS_MAX,
    DEPTH_MAX,
    REGEX_CHARACTERS_MAX,
    TERMS_MAX,
)
from receiver.errors import InvalidFilter
from tests.support.cases import each_case

WEB = Comparison(Intrinsic("service"), "=", "web")
ERROR = Comparison(Intrinsic("status"), "=", "Error")
ROOT = Comparison(Intrinsic("root"), "=", "1")


@each_case(
    ("text", "tree"),
    [
        ("", And(())),
        ("  \n", And(())),
        ("service=web", WEB),
        (' service = "web" ', WEB),
        ("service=web status=ERROR", And((WEB, ERROR))),
        ("service=web AND status=error OR root", Or((And((WEB, ERROR)), ROOT))),
        ("service=web (status=error or root=true)", And((WEB, Or((ERROR, ROOT))))),
        ("-service=web", Not(WEB)),
        ("NOT(NOT root)", Not(Not(ROOT))),
        ("duration>=1.5s", Comparison(Intrinsic("duration"), ">=", 1_500_000_000)),
        ("duration<250µs", Comparison(Intrinsic("duration"), "<", 250_000)),
        ("name=GET*", Comparison(Intrinsic("operation"), "=", Wildcard(("GET", "")))),
        (r'name="a\*b\\\"\d"', Comparison(Intrinsic("operation"), "=", r"a*b\"\d")),
        (r'name=~"^\d+\.\"$"', Comparison(Intrinsic("operation"), "=~", r'^\d+\."$')),
        ("http.route=/a", Comparison(Attribute("", "http.route"), "=", "/a")),
        ("span.k>-1.5e3", Comparison(Attribute("span", "k"), ">", -1500.0)),
        ("http.status_code=007", Comparison(Attribute("", "http.status_code"), "=", "007")),
        ('resource."a \\"b" exists', Exists(Attribute("resource", 'a "b'))),
        ("root=false", Comparison(Intrinsic("root"), "=", "")),
        ("trace=OR", Comparison(Intrinsic("trace"), "=", "OR")),
        ("or.x=1", Comparison(Attribute("", "or.x"), "=", "1")),
    ],
)
def test_text_is_parsed_to_a_tree(text: str, tree: Filter) -> None:
    assert parse_filter(text) == tree


@each_case(
    ("text", "column", "problem"),
    [
        ("sevice=web", 1, "did you mean 'service'?"),
        ("service=web statsu=error", 13, "did you mean 'status'?"),
        ("k=v", 1, "written span.KEY"),
        ("status=eror", 8, "did you mean 'error'?"),
        ("kind=zzz", 6, "Known are: unspecified, internal, server, client, producer, consumer"),
        ("duration>250", 10, "not a duration"),
        ("duration>0.5ns", 10, "whole number of nanoseconds"),
        ("duration>99999999999h", 10, "below 2^64"),
        ("duration=~1s", 9, "a duration takes"),
        ("service>web", 8, "this field takes = != =~ or !~"),
        ("status>ok", 7, "this field takes = or !="),
        ("span.k>abc", 8, "not a number"),
        ("span.k>NaN", 8, "not a number"),
        ("service", 8, "expected an operator"),
        ("service exists", 1, "expected an attribute before exists"),
        ("service=", 9, "the value is missing"),
        ('service="web', 9, "not closed"),
        ("service==web", 9, "unknown operator"),
        ("(service=web", 13, "expected ')'"),
        ("service=web)", 12, "unexpected character"),
        ("()", 2, "expected a field"),
        ("service=web OR", 15, "expected a field"),
        ("OR service=web", 1, "expected a field"),
        ("service=web AND OR root", 17, "expected a field"),
        ("service=a\0b", 10, "NUL"),
        ("service=\udcff", 9, "UTF-8"),
        ("service=" + "x" * CHARACTERS_MAX, CHARACTERS_MAX + 1, "characters"),
        ("root " * TERMS_MAX + "root", 5 * TERMS_MAX + 1, "comparisons"),
        ("(" * DEPTH_MAX + "(root", DEPTH_MAX + 2, "levels"),
        ("-" * (DEPTH_MAX + 1) + "root", DEPTH_MAX + 2, "levels"),
        ("name=~" + "x" * (REGEX_CHARACTERS_MAX + 1), 7, "regular expression"),
    ],
)
def test_error_has_the_column_and_the_problem(text: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_filter(text)

    assert refused.value.column == column
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"filter, column {column}: ")


def test_filter_at_every_limit_is_accepted() -> None:
    assert parse_filter("(" * DEPTH_MAX + "root " * TERMS_MAX + ")" * DEPTH_MAX)
    assert parse_filter("name=~" + "x" * REGEX_CHARACTERS_MAX)
