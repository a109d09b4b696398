"""Time range of pages: the links and forms of its menu, and the answer to a range that is not valid."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from receiver.console.ui.view import View
from receiver.errors import MalformedBody
from tests.console.ui.conftest import Client
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, query_of
from tests.support.cases import each_case
from tests.support.receiver_facts import facts_of

FACTS = facts_of(Path(), ThreadPoolExecutor(1))
NOW_S = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


def view(**query: str) -> View:
    return View("/errors", query, NOW_S, FakeSource(), {}, facts=FACTS)


def times_of(url: str) -> tuple[str, ...]:
    query = query_of(url)
    return tuple(query[name][11:19] for name in ("since", "until"))


def test_range_with_both_ends_in_one_text_is_that_of_two_ages() -> None:
    assert view(since="-3h..-1h").times == view(since="3h", until="1h").times
    assert view(since="-3h..now").times == view(since="3h").times
    assert view(since="-3h..-1h").page_link("/") == "/?since=3h&until=1h"


@each_case(
    ("query", "earlier", "later", "wider"),
    [
        pytest.param(
            {"since": "-3h..-1h"},
            ("03:00:00", "05:00:00"),
            ("06:00:00", "08:00:00"),
            ("04:00:00", "08:00:00"),
            id="the next range ends now",
        ),
        pytest.param(
            {"since": "-5h..-4h"},
            ("02:00:00", "03:00:00"),
            ("04:00:00", "05:00:00"),
            ("02:30:00", "04:30:00"),
            id="in the past",
        ),
        pytest.param(
            {"since": "1h"}, ("06:00:00", "07:00:00"), None, ("06:00:00", "08:00:00"), id="until now"
        ),
    ],
)
def test_steps_have_the_length_of_the_range_and_end_now_at_the_latest(
    query: dict[str, str], earlier: tuple[str, str], later: tuple[str, str] | None, wider: tuple[str, str]
) -> None:
    page = view(**query, filter="root")

    assert times_of(page.earlier) == earlier
    assert (times_of(page.later) if page.later else None) == later
    assert times_of(page.wider) == wider
    assert query_of(page.earlier)["filter"] == "root"


def test_reloading_is_kept_by_the_navigation_but_not_by_a_link_to_the_view() -> None:
    page = view(since="6h", refresh="10s")

    assert page.page_link("/search") == "/search?since=6h&refresh=10s"
    assert query_of(page.with_range("1h"))["refresh"] == "10s"
    assert "refresh" not in query_of(page.permalink)
    assert "refresh" not in query_of(page.with_refresh(""))
    with pytest.raises(MalformedBody, match="refresh: expected one of"):
        view(refresh="1s")


@each_case(
    ("query", "message"),
    [
        ({"since": "soon"}, "neither an age nor an instant"),
        ({"since": "-1h..-3h"}, "expected a later time than since"),
        ({"since": "-3h..-1h", "until": "1h"}, "since has both ends of the range"),
        ({"since": "..-1h"}, "neither an age nor an instant"),
        ({"since": "2026-01-31T10:00", "until": "2026-01-31T09:00"}, "expected a later time than since"),
    ],
)
async def test_range_that_is_not_valid_leaves_the_page_with_an_error_beside_the_field(
    site: Client, query: dict[str, str], message: str
) -> None:
    answer = await site.get("/services", params={**query, "filter": "kind=server"})

    page = Document(await answer.text())
    assert answer.status == 400
    assert message in page.text
    assert "The page cannot be shown" not in page.text
    assert any(each.get("role") == "alert" and each["id"] == "range-error" for each in page.all("p"))
    assert any("open" in each for each in page.all("details") if each.get("id") == "ranges")
    field = next(each for each in page.all("input") if each.get("aria-describedby") == "range-error")
    assert field["value"] == query["since"]
    kept = [each["value"] for each in page.all("input") if each.get("name") == "filter"]
    assert "kind=server" in kept


async def test_form_of_two_times_is_a_form_in_utc_without_scripts(site: Client) -> None:
    page = Document(await (await site.get("/errors", params={"since": "-3h..-1h"})).text())
    fields = {
        str(each["name"]): str(each["value"])
        for each in page.all("input")
        if each.get("type") == "datetime-local"
    }

    again = Document(await (await site.get("/errors", params=fields)).text())

    assert (
        f"Data from {fields['since'].replace('T', ' ')} to {fields['until'].replace('T', ' ')} UTC."
        in again.text
    )
