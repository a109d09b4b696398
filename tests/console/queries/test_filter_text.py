"""Tests of filters in one line, of spans and of traces: the parsed trees, and the column in each error."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from receiver.console.queries.filters.filter import (
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    HasSpan,
    Intrinsic,
    Not,
    Or,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
    Wildcard,
)
from receiver.console.queries.filters.filter_text import parse_filter, parse_trace_filter, with_text_field
from receiver.console.queries.filters.filter_values import (
    CHARACTERS_MAX,
    DEPTH_MAX,
    REGEX_CHARACTERS_MAX,
    TERMS_MAX,
    TRACE_TERMS_MAX,
)
from receiver.console.queries.filters.plain_text import is_plain
from receiver.errors import InvalidFilter
from tests.support.cases import each_case

WEB = Comparison(Intrinsic("service"), "=", "web")
ERROR = Comparison(Intrinsic("status"), "=", "Error")
ROOT = Comparison(Intrinsic("root"), "=", "1")
TIME_OUT = Comparison(Intrinsic("text"), "=", Wildcard(("time", "out")))
NINE = Comparison(Intrinsic("text"), "=", Wildcard(tuple("123456789")))
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0cc902c7"


def searched(text: str) -> Comparison:
    return Comparison(Intrinsic("text"), "=", text)


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
        ("timeout", searched("timeout")),
        ("card declined", And((searched("card"), searched("declined")))),
        ('"card declined" service=web', And((searched("card declined"), WEB))),
        ("service=web (refused OR -time*out)", And((WEB, Or((searched("refused"), Not(TIME_OUT)))))),
        ("user not found", And((searched("user"), searched("not"), searched("found")))),
        ("no route: f(x) - or", And(tuple(map(searched, ("no", "route", "f", "x", "or"))))),
        ("“NOT NULL” -1 -retry", And((*map(searched, ("NOT", "NULL", "1")), Not(searched("retry"))))),
        ("E: 1 2 3 4 5 6 7 8 -9", And((searched("E"), NINE))),
        ("root\\", searched("root\\")),
        ("file already exists", And(tuple(map(searched, ("file", "already", "exists"))))),
        ("root declined", And((ROOT, searched("declined")))),
        ("1 2 3 4 5 6 7 8 9", NINE),
        (TRACE_ID.upper(), Or((Comparison(Intrinsic("trace"), "=", TRACE_ID), searched(TRACE_ID.upper())))),
        (SPAN_ID.upper(), Or((Comparison(Intrinsic("span"), "=", SPAN_ID), searched(SPAN_ID.upper())))),
        ("dpl_7", Or((Comparison(Intrinsic("deployment"), "=", "dpl_7"), searched("dpl_7")))),
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
        ("-" * (DEPTH_MAX + 1) + "root=true", DEPTH_MAX + 2, "levels"),
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


@each_case(
    ("text", "widened"),
    [
        ("service=web", "service=web"),
        ("service=web time*out", 'service=web text:all="time*out"'),
        ('{"a b"} && {root}', '{text:all="a b"} && {root}'),
        ("user (not) - found --", 'text:all="user" text:all="not" text:all="found"'),
        ("a -(b) C:\\", 'text:all="a" text:all="b" text:all="C:\\\\"'),
        ('status=error"x y"', 'status=error text:all="x y"'),
        (f"{SPAN_ID} root -x", f'{SPAN_ID} root -text:all="x"'),
        ("1 2 3 4 5 6 7 8 9", 'text:all="1*2*3*4*5*6*7*8*9"'),
        (TRACE_ID, TRACE_ID),
    ],
)
def test_texts_of_a_filter_are_given_another_field(text: str, widened: str) -> None:
    assert with_text_field(text, "text:all") == widened


SLOW = Comparison(Intrinsic("trace:duration"), ">", 5_400 * 10**9)
A, B, C = HasSpan(WEB), HasSpan(ERROR), HasSpan(And(()))


@each_case(
    ("text", "tree"),
    [
        ("", C),
        ("service=web", A),
        ("{service=web}", A),
        (" { service = web } ", A),
        ("{}", C),
        ("{service=web status=error}", HasSpan(And((WEB, ERROR)))),
        ("{service=web} && {status=error}", TraceAnd((A, B))),
        ("{service=web} {status=error}", TraceAnd((A, B))),
        ("{service=web}AND{status=error}", TraceAnd((A, B))),
        ("{service=web} || {status=error} && {}", TraceOr((A, TraceAnd((B, C))))),
        ("({service=web} OR {status=error}) && {}", TraceAnd((TraceOr((A, B)), C))),
        ("{service=web} -{status=error}", TraceAnd((A, TraceNot(B)))),
        ("NOT {-service=web}", TraceNot(HasSpan(Not(WEB)))),
        ("service=web trace:duration>1h30m", HasSpan(And((WEB, SLOW)))),
        ("{trace:duration>1.5h}", HasSpan(SLOW)),
        ("trace:spans>=100", HasSpan(Comparison(Intrinsic("trace:spans"), ">=", 100))),
        ("trace:rootService=web", HasSpan(Comparison(Intrinsic("trace:service"), "=", "web"))),
        ("trace:id=ab", HasSpan(Comparison(Intrinsic("trace"), "=", "ab"))),
        ('{"a}b"=nil2}', HasSpan(Comparison(Attribute("", "a}b"), "=", "nil2"))),
        ('{a.b="nil" a.c="x && y"}', parse_trace_filter('a.b=nil a.c="x && y"')),
        ("a.b=nil a.c=x&&y a.d={}", parse_trace_filter('a.b="nil" a.c="x&&y" a.d="{}"')),
    ],
)
def test_condition_on_traces_is_parsed_to_a_tree(text: str, tree: TraceFilter) -> None:
    assert parse_trace_filter(text) == tree


IS_TRACEQL = "this is TraceQL"


@each_case(
    ("text", "column", "problem"),
    [
        ("{service=web", 13, "a brace is not closed"),
        ("{service=web}}", 14, "expected &&, || or the end"),
        ("{service=web} | count() > 2", 15, "expected &&, || or the end"),
        ("{service=web} >> {}", 15, "expected &&, || or the end"),
        ("{service=web} status=error", 15, "each condition is in braces"),
        ("service=web {status=error}", 13, "put the comparison in braces"),
        ("{service=web} &&", 17, "expected a spanset"),
        ("({service=web}", 15, "expected ')'"),
        ("{service=web && status=error}", 14, IS_TRACEQL),
        ("{service=web || status=error}", 14, IS_TRACEQL),
        ("{a.b=x&&a.c=y}", 6, IS_TRACEQL),
        ("{a.b=`x`}", 6, IS_TRACEQL),
        ("{.a.b=x}", 2, IS_TRACEQL),
        ("{!(service=web)}", 2, IS_TRACEQL),
        ("{span.b != nil}", 12, IS_TRACEQL),
        ("{service=web .b=1}", 14, IS_TRACEQL),
        ("{sevice=web}", 2, "did you mean 'service'?"),
        ("{trace:duratoin>1s}", 2, "did you mean 'trace:duration'?"),
        ("trace:duration=~1s", 15, "a duration takes"),
        ("trace:spans=~1", 12, "a count takes"),
        ("trace:spans>1.5", 13, "not a whole number"),
        ("trace:spans>" + "9" * 16, 13, "not a whole number"),
        ("trace:duration>1h30", 16, "not a duration"),
        ("trace:duration>" + "1s" * 9, 16, "not a duration"),
        ("{}" * TERMS_MAX + "{}", 2 * TERMS_MAX + 2, "comparisons"),
        ("(" * (DEPTH_MAX + 1) + "{}", DEPTH_MAX + 2, "levels"),
        ("-" * (DEPTH_MAX + 1) + "{}", DEPTH_MAX + 2, "levels"),
        ("{" + "(" * (DEPTH_MAX + 1) + "root", DEPTH_MAX + 3, "levels"),
        ("{trace:spans>1}" * (TRACE_TERMS_MAX + 1), 15 * TRACE_TERMS_MAX + 14, "fields of the trace"),
    ],
)
def test_error_of_a_condition_on_traces_has_the_column_and_the_problem(
    text: str, column: int, problem: str
) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_trace_filter(text)

    assert (refused.value.column, problem in str(refused.value)) == (column, True), str(refused.value)


def test_condition_at_every_limit_is_accepted() -> None:
    assert parse_trace_filter("{}" * TERMS_MAX)
    assert parse_trace_filter("(" * DEPTH_MAX + "{}" + ")" * DEPTH_MAX)
    assert parse_trace_filter("{" + "(" * DEPTH_MAX + "root" + ")" * DEPTH_MAX + "}")
    assert parse_trace_filter("{trace:spans>1}" * TRACE_TERMS_MAX)


@each_case("text", ["{service=web}", "-{service=web}", "service=web trace:spans>1"])
def test_condition_on_traces_is_refused_where_spans_are_filtered(text: str) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(text)


def test_longest_filters_are_parsed_in_a_moment() -> None:
    # The longest filters took seconds, in which the whole process stood still.
    for unit in (",.", "!.", "a. ", "exists ", "service ", "-", '"', "\\", " ", ".exists "):
        start_s = time.thread_time()
        with suppress(InvalidFilter):
            parse_trace_filter(unit * (CHARACTERS_MAX // len(unit)))
        is_plain(unit * 100_000)

        assert time.thread_time() - start_s < 1, unit
