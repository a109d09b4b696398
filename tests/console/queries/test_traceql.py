"""Tests of the subset of TraceQL: the parsed trees, and the column and the unsupported part in each error."""

from __future__ import annotations

import pytest

from receiver.console.queries.filters.filter import (
    Anchored,
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
    TraceOr,
)
from receiver.console.queries.filters.filter_values import (
    CHARACTERS_MAX,
    DEPTH_MAX,
    REGEX_CHARACTERS_MAX,
    TERMS_MAX,
    TRACE_TERMS_MAX,
)
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.errors import InvalidFilter
from tests.support.cases import each_case

ERROR = Comparison(Intrinsic("status"), "=", "Error")
SLOW = Comparison(Intrinsic("duration"), ">", 250_000_000)
HTTP = Comparison(Attribute("span", "http.status_code"), ">=", 500.0)
WEB = Comparison(Attribute("resource", "service.name"), "=", "web")
K = Attribute("", "k")
A, B, ANY = HasSpan(ERROR), HasSpan(SLOW), HasSpan(And(()))


@each_case(
    ("text", "condition"),
    [
        ("", And(())),
        ("true", And(())),
        ("false", Not(And(()))),
        ("status = error", ERROR),
        ("status=error&&duration>250ms", And((ERROR, SLOW))),
        ("(status=error || duration>0.25s) && span.http.status_code>=500", And((Or((ERROR, SLOW)), HTTP))),
        ('resource.service.name="web"', WEB),
        ("resource.service.name=`web`", WEB),
        (
            '(resource.service.name="web" || resource.service.name="cart")',
            Or((WEB, Comparison(Attribute("resource", "service.name"), "=", "cart"))),
        ),
        ("!(status = error)", Not(ERROR)),
        ("!!(status = error)", Not(Not(ERROR))),
        (".k = nil", Not(Exists(K))),
        (".k != nil", Exists(K)),
        (".k", Comparison(K, "=", "true")),
        ("!.k && .k", And((Not(Comparison(K, "=", "true")), Comparison(K, "=", "true")))),
        (".k = false", Comparison(K, "=", "false")),
        (".k = 200", Comparison(K, "=", "200")),
        (".k != -007", Comparison(K, "!=", "-7")),
        (".k = 0.5", Comparison(K, "=", 0.5)),
        (".k < -1.5e3", Comparison(K, "<", -1500.0)),
        ('."a b".c-d/e = "x"', Comparison(Attribute("", "a b.c-d/e"), "=", "x")),
        (r'span."a\"b\\" = "x"', Comparison(Attribute("span", 'a"b\\'), "=", "x")),
        ('event.exception.type = "E"', Comparison(Attribute("event", "exception.type"), "=", "E")),
        ('link.k = "x"', Comparison(Attribute("link", "k"), "=", "x")),
        ('instrumentation.k = "x"', Comparison(Attribute("instrumentation", "k"), "=", "x")),
        ('instrumentation:name = "x"', Comparison(Intrinsic("scope:name"), "=", "x")),
        ('event:name = "exception"', Comparison(Intrinsic("event:name"), "=", "exception")),
        ('span:name = "*"', Comparison(Intrinsic("operation"), "=", "*")),
        ("kind != server", Comparison(Intrinsic("kind"), "!=", "Server")),
        ('statusMessage =~ "a|b"', Comparison(Intrinsic("status-message"), "=~", Anchored("a|b"))),
        (r'name !~ "\\d+\t\x41\u00e9"', Comparison(Intrinsic("operation"), "!~", Anchored("\\d+\tAé"))),
        ("traceDuration > 1h30m", Comparison(Intrinsic("trace:duration"), ">", 5_400 * 10**9)),
        ('rootServiceName = "web"', Comparison(Intrinsic("trace:service"), "=", "web")),
        ('trace:rootName = "GET /"', Comparison(Intrinsic("trace:name"), "=", "GET /")),
    ],
)
def test_spanset_is_parsed_to_a_tree(text: str, condition: Filter) -> None:
    assert parse_traceql(f"{{{text}}}") == HasSpan(condition)
    assert parse_traceql(f" {{ {text}\n}} ") == HasSpan(condition)


@each_case(
    ("text", "tree"),
    [
        ("", ANY),
        ("{status=error} && {duration>250ms}", TraceAnd((A, B))),
        ("{status=error} || {duration>250ms} || {}", TraceOr((A, B, ANY))),
        ("({status=error} || {duration>250ms}) && {}", TraceAnd((TraceOr((A, B)), ANY))),
    ],
)
def test_spansets_are_joined(text: str, tree: TraceFilter) -> None:
    assert parse_traceql(text) == tree


@each_case(
    ("text", "column", "problem"),
    [
        ("{} | count() > 2", 4, "pipelines and metrics"),
        ("{} | rate() by (name)", 4, "pipelines and metrics"),
        ("({} | count() > 2)", 5, "pipelines and metrics"),
        ("count() > 2", 1, "aggregates and metrics are not supported"),
        ("status=error", 1, "expected a spanset: a condition in braces"),
        ("{} >> {}", 4, "structural operators"),
        ("{} > {}", 4, "structural operators"),
        ("{} !~ {}", 4, "structural operators"),
        ("{} &>> {}", 4, "structural operators"),
        ("{} with (most_recent=true)", 4, "hints"),
        ("{} {}", 4, "expected && || or the end"),
        ("{status=error || status=ok && kind=server}", 28, "put parentheses around"),
        ("{} || {} && {}", 10, "put parentheses around"),
        ("{duration > 2 * 100ms}", 13, "with its unit"),
        ("{.k > 10 * 1024}", 10, "arithmetic is not supported"),
        ("{.k + 1 > 2}", 5, "arithmetic is not supported"),
        ("{(.k > 1) = true}", 11, "comparisons of conditions"),
        ("{.a = .b}", 7, "a field with a field"),
        ("{.a = span.b}", 7, "a field with a field"),
        ("{true = .a}", 2, "a literal before the operator"),
        ('{"x" = .a}', 2, "expected a field"),
        ("{!.k = true}", 6, "parentheses around the comparison"),
        ("{span:childCount > 1}", 2, "not supported"),
        ("{event:timeSinceStart > 1s}", 2, "not supported"),
        ("{parent.k = 1}", 2, "attributes of the parent"),
        ("{nestedSetParent = -1}", 2, "not supported"),
        ("{nam = `x`}", 2, "did you mean 'name'?"),
        ("{service.name = `x`}", 2, "unknown field"),
        ("{name}", 6, "expected an operator"),
        ("{. = 1}", 3, "the key of an attribute is missing"),
        ('{."k = 1}', 3, "the quoted key is not closed"),
        ('{."a\\n" = 1}', 3, "or has an escape"),
        ("{name = x}", 9, "expected a quoted text"),
        ("{name = 5}", 9, "expected a quoted text"),
        ("{name = }", 9, "the value is missing"),
        ('{name = "x}', 9, "not closed"),
        (r'{name = "\d"}', 9, "unknown escape"),
        (r'{name = "\xff"}', 9, "unknown escape"),
        (r'{name = "\U00110000"}', 9, "unknown escape"),
        (r'{name = "\u0000"}', 9, "NUL"),
        (r'{name = "\ud800"}', 9, "UTF-8"),
        ("{name =~ 5}", 10, "a regular expression is a quoted text"),
        ('{name > "a"}', 7, "this field takes"),
        ("{name = nil}", 9, "nil is compared with an attribute"),
        ("{.k > nil}", 7, "nil is compared with an attribute"),
        ("{.k = error}", 7, "expected a quoted text"),
        ("{.k > 5s}", 7, "no attribute is a duration"),
        ('{.k >= "400"}', 8, "without quotation marks"),
        ("{.k > 1.2.3}", 7, "not a number"),
        ("{status = `error`}", 11, "without quotation marks"),
        ("{status = eror}", 11, "did you mean 'error'?"),
        ("{status > error}", 9, "this field takes"),
        ("{duration > 250}", 13, "with its unit"),
        ("{duration > -5s}", 13, "not a duration"),
        ("{duration > 5y}", 13, "not a duration"),
        ("{status=error", 14, "not closed"),
        ("({}", 4, "expected ')'"),
        ("{} &&", 6, "expected a spanset"),
        ("{status=error}\0", 15, "NUL"),
        ("{name=`" + "x" * CHARACTERS_MAX + "`}", CHARACTERS_MAX + 1, "characters"),
        ("{" + "&&".join([".k"] * (TERMS_MAX + 1)) + "}", 4 * TERMS_MAX + 2, "comparisons"),
        ("&&".join(["{}"] * (TERMS_MAX + 1)), 4 * TERMS_MAX + 2, "comparisons"),
        ("{" + "(" * (DEPTH_MAX + 1) + ".k", DEPTH_MAX + 3, "levels"),
        ("{" + "!" * (DEPTH_MAX + 1) + ".k", DEPTH_MAX + 3, "levels"),
        ("(" * (DEPTH_MAX + 1) + "{}", DEPTH_MAX + 2, "levels"),
        ("{name=~`" + "x" * (REGEX_CHARACTERS_MAX + 1) + "`}", 8, "regular expression"),
        (
            "&&".join(["{traceDuration>1s}"] * (TRACE_TERMS_MAX + 1)),
            20 * TRACE_TERMS_MAX + 16,
            "fields of the trace",
        ),
    ],
)
def test_error_has_the_column_and_the_problem(text: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_traceql(text)

    assert (refused.value.column, problem in str(refused.value)) == (column, True), str(refused.value)


def test_query_at_every_limit_is_accepted() -> None:
    assert parse_traceql("{" + "&&".join([".k"] * TERMS_MAX) + "}")
    assert parse_traceql("{" + "(" * DEPTH_MAX + ".k" + ")" * DEPTH_MAX + "}")
    assert parse_traceql("(" * DEPTH_MAX + "{}" + ")" * DEPTH_MAX)
    assert parse_traceql("{name=~`" + "x" * REGEX_CHARACTERS_MAX + "`}")
    assert parse_traceql("&&".join(["{traceDuration>1s}"] * TRACE_TERMS_MAX))
