"""A request for a page: filters of names, and links."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from receiver.api.source import Answer, Row
from receiver.query.filters.filter import Comparison, Intrinsic
from receiver.query.filters.filter_text import parse_filter
from receiver.ui.view import View, term


class NoSource:
    """Source that is never asked."""

    async def ask(self, _name: str, _query: Mapping[str, str]) -> Answer:
        raise NotImplementedError

    async def outline(self, _trace_id: str) -> list[Row]:
        raise NotImplementedError

    async def span(self, _trace_id: str, _span_id: str) -> Row | None:
        raise NotImplementedError


def view(**query: str) -> View:
    return View("/errors", query, 1_800_000_000.5, NoSource(), {})


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=40))
def test_term_matches_exactly_its_text(text: str) -> None:
    assert parse_filter(term("service", text)) == Comparison(Intrinsic("service"), "=", text)


def test_times_of_a_page_are_absolute_and_include_the_current_second() -> None:
    assert view(since="1h").times == {
        "since": "2027-01-15T07:00:00.000Z",
        "until": "2027-01-15T08:00:01.000Z",
    }


def test_link_keeps_project_and_deployment_and_drops_empty_parameters() -> None:
    link = view(project="a&b", deployment="", since="1h").link("/search", q="status=error", sort="")

    assert link == (
        "/search?project=a%26b&q=status%3Derror"
        "&since=2027-01-15T07%3A00%3A00.000Z&until=2027-01-15T08%3A00%3A01.000Z"
    )


def test_filter_joins_the_chosen_project_with_other_terms() -> None:
    assert view(project="prj_1").filter("", "status=error") == 'project="prj_1" status=error'


def test_permalink_replaces_ages_with_absolute_times() -> None:
    assert view(since="1h", q="x").permalink == (
        "/errors?since=2027-01-15T07%3A00%3A00.000Z&q=x&until=2027-01-15T08%3A00%3A01.000Z"
    )
