"""A request for a page: filters of names, and links."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.console.api.source import Row
from receiver.console.queries.filters.filter import And, Attribute, Comparison, Filter, HasSpan, Intrinsic
from receiver.console.queries.filters.filter_text import parse_filter, parse_trace_filter
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.ui.charts.svg import sparkline
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.filter_text import all_of, error_column, without_term
from receiver.console.ui.view import View, moment, term
from receiver.errors import InvalidFilter
from tests.console.ui.fake_source import FakeSource
from tests.support.cases import each_case
from tests.support.receiver_facts import facts_of

FACTS = facts_of(Path(), ThreadPoolExecutor(1))


def view(**query: str) -> View:
    return View("/errors", query, 1_800_000_000.5, FakeSource(), {}, facts=FACTS)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=40))
def test_term_matches_only_its_text(text: str) -> None:
    assert parse_filter(term("service", text)) == Comparison(Intrinsic("service"), "=", text)


def test_times_of_a_page_are_absolute_and_include_the_current_second() -> None:
    assert view(since="1h").times == {
        "since": "2027-01-15T07:00:00.000Z",
        "until": "2027-01-15T08:00:01.000Z",
    }


def test_links_keep_the_project_and_the_range_and_an_age_stays_an_age() -> None:
    chosen = view(project="a&b", deployment="", since="-3h..-1h", refresh="1m")

    assert chosen.link("/search", filter="status=error", sort="") == (
        "/search?project=a%26b&filter=status%3Derror&since=3h&until=1h"
    )
    assert chosen.changed(sort="spans") == "/errors?project=a%26b&since=3h&refresh=1m&until=1h&sort=spans"
    assert chosen.deployment_link("dpl_1") == "/deployment/dpl_1?since=3h&until=1h"
    assert chosen.link("/search", **moment("2027-01-15T07:00:00.123456789Z")) == (
        "/search?project=a%26b&since=2027-01-15T07%3A00%3A00.123Z&until=2027-01-15T07%3A00%3A00.124Z"
    )
    assert view(since="1h", filter="x").permalink == (
        "/errors?since=2027-01-15T07%3A00%3A00.000Z&filter=x&until=2027-01-15T08%3A00%3A01.000Z"
    )
    # The links of the frame keep an age, and no other parameter.
    of_frame = view(project="a&b", since="6h", filter="x")
    assert of_frame.page_link("/search") == "/search?project=a%26b&since=6h"
    assert view(since="6h", until="2h").page_link("/") == "/?since=6h&until=2h"


def test_range_between_ages_is_named_by_them() -> None:
    names = {"1h": "last hour"}

    assert [view(since=since).ages_text(names) for since in ("1h", "2h", "-3h..-1h", "2026-01-15")] == [
        "last hour",
        "last 2h",
        "3h to 1h ago",
        "",
    ]


def test_filter_joins_the_chosen_project_with_other_terms() -> None:
    assert view(project="prj_1").filter("", "status=error") == 'project="prj_1" status=error'


def test_joined_filters_must_all_match() -> None:
    joined = all_of('project="p"', "user not found")
    assert joined == 'project="p" text="user" text="not" text="found"'

    joined = all_of('project="p"', "root OR status=error", "", "kind=server")

    assert parse_filter(joined) == parse_filter('project="p" AND (root OR status=error) AND kind=server')


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=40))
def test_key_of_an_attribute_may_have_any_characters(key: str) -> None:
    assert parse_filter(term(attribute_text("span", key), "x")) == Comparison(
        Attribute("span", key), "=", "x"
    )


def test_term_is_removed_only_if_the_other_terms_keep_their_meaning() -> None:
    assert without_term('root service="a" kind=server', 'service="a"') == "root kind=server"
    assert without_term("service=a root", 'service="a"') == "root"
    assert without_term('root -service="a"', 'service="a"') is None
    assert without_term('root OR service="a"', 'service="a"') is None


def test_error_column_counts_from_the_start_of_the_text() -> None:
    assert error_column("service=web status=eror") == 20
    assert error_column("service=web") == 0


def test_values_of_each_group_are_in_their_intervals() -> None:
    timeline = Timeline(view(since="2027-01-15T07:00Z", until="2027-01-15T07:05Z"))
    rows: list[Row] = [
        {"group": "a", "start": "2027-01-15T07:00:00Z", "spans": 1},
        {"group": "b", "start": "2027-01-15T07:00:05Z", "spans": 2},
        {"group": "a", "start": "2027-01-15T07:04:55Z", "spans": 3},
    ]

    values = timeline.values_by_group(rows, "spans")

    assert (timeline.step_s, timeline.count) == (5, 60)
    assert values["a"] == [1, *[0] * 58, 3]
    assert values["b"] == [0, 2, *[0] * 58]
    assert values["unknown"] == [0] * 60


@each_case(
    ("since", "until", "incomplete"),
    [
        pytest.param("2027-01-15T07:00Z", "2027-01-15T07:05Z", [], id="whole intervals"),
        pytest.param("2027-01-15T07:00:02Z", "2027-01-15T07:05Z", [0], id="begins in an interval"),
        pytest.param("2027-01-15T07:00:02Z", "2027-01-15T07:05:01Z", [0, 60], id="begins and ends in one"),
        pytest.param("60s", "", [12], id="ends in the current second"),
        pytest.param("30s", "", [30], id="intervals of a second, of which one has not ended"),
    ],
)
def test_intervals_that_are_partly_in_the_range_or_the_past_are_incomplete(
    since: str, until: str, incomplete: list[int]
) -> None:
    assert Timeline(view(since=since, until=until)).incomplete == incomplete


def test_incomplete_intervals_are_dots_beside_the_line() -> None:
    drawn = sparkline([1, 60, 60, 60, 30], "requests", [0, 4])

    paths = re.findall(r'd="M([^"]*)" class="([^"]*)"', drawn)
    line, *dots = [(points.split("L"), kind) for points, kind in paths]
    assert (len(line[0]), line[1]) == (3, "line")
    assert len({point.split()[1] for point in line[0]}) == 1
    assert [(len(set(points)), kind) for points, kind in dots] == [(1, "line incomplete")] * 2
    assert "<title>requests; dots: incomplete intervals</title>" in drawn


PIECES = (
    *("card", "not", "or", "NOT", "root", "-x", "-", "--", "(", ")", "(y)", "a:", "b.", "“c”", "*d", "e\\"),
    *("-7", "f:g:", "00f067aa0cc902c7", "4bf92f3577b34da6a3ce929d0e0e4736", "dpl_7"),
)
"""Words and punctuation of a text without a comparison."""


def conditions(tree: Filter) -> list[Filter]:
    """Return the parts of a conjunction, also of one in another."""
    if not isinstance(tree, And):
        return [tree]
    return [condition for part in tree.parts for condition in conditions(part)]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map(" ".join))
def test_text_means_the_same_beside_a_comparison(text: str) -> None:
    try:
        alone = parse_trace_filter(text)
        assert isinstance(alone, HasSpan)
    except InvalidFilter:
        return

    joined = parse_filter(all_of("service=web", text))

    assert conditions(joined) == [parse_filter("service=web"), *conditions(alone.part)]
