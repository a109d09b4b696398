"""Charts of the search page and of services: their numbers equal those of the API and of their links."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

import orjson

from receiver.console.ui.charts.svg import Axes, Box, Marker, Series, Tick, Unit, line_chart, stacked_bars
from tests.console.ui.conftest import TIMES, Client
from tests.console.ui.test_pages import Document, page_of, query_of
from tests.console.ui.test_search import spans_of
from tests.support.answers import Row
from tests.support.cases import each_case

SHOP = "http.route exists project=prj_1"
COUNT = Unit("{:g}".format, 1)


async def lines_of(site: Client, **query: str) -> list[Row]:
    answer = await site.get("/api/v1/chart", params={**TIMES, "spans": "all", "filter": SHOP, **query})
    assert answer.status == 200, await answer.text()
    return [line for text in (await answer.read()).splitlines() if "group" in (line := orjson.loads(text))]


async def page_text(site: Client, **query: str) -> str:
    answer = await site.get("/search", params={**TIMES, "filter": SHOP, **query})
    assert answer.status == 200
    return await answer.text()


def bars_of(text: str) -> list[tuple[str, str, str]]:
    """Return the link, the name and the value of each bar."""
    found = re.findall(r'<a href="([^"]+)" tabindex="-1"><rect[^>]*><title>([^<]*): ([^<:]*)</title>', text)
    return [(unescape(link), unescape(name), value) for link, name, value in found]


async def test_bars_of_the_histogram_have_the_spans_of_the_api_and_of_their_links(site: Client) -> None:
    bars = bars_of(await page_text(site))
    lines = await lines_of(site, by="status", every="1m")

    counts = Counter[str]()
    for _, name, value in bars:
        counts[name] += int(value.partition(",")[0])
    totals = {line["group"]: line["spans"] for line in lines if line["start"] is None}
    assert counts == {"failed": totals.pop("Error"), "not failed": sum(totals.values())}
    for link, _, value in (*bars[:2], *bars[-2:]):
        assert await spans_of(site, link) == int(value.partition(",")[0])


@each_case("by", ["service", "http.route,deployment", "span.http.route", ""])
async def test_rows_of_a_chart_have_the_numbers_of_the_api_and_of_their_links(site: Client, by: str) -> None:
    text = await page_text(site, by=by, measure="p95", top="3")
    lines = await lines_of(site, by=by, measure="p95", top="3")

    table = text[text.index("Groups of the chart") :].partition("</table>")[0]
    rows = re.findall(
        r'<a href="([^"]+)">[^<]+</a></th><td class="number">([^<]+)</td><td[^>]+>([\d,]+)</td>', table
    )
    assert [int(spans.replace(",", "")) for _, _, spans in rows] == [line["spans"] for line in lines]
    assert ("all others" in table) == any(line["is_rest"] for line in lines)
    for link, _, spans in rows:
        assert await spans_of(site, unescape(link)) == int(spans.replace(",", ""))
        assert query_of(unescape(link)).get("measure") == "p95"


async def test_bars_of_groups_have_the_spans_of_the_api_and_of_their_links(site: Client) -> None:
    bars = bars_of(await page_text(site, by="service", measure="spans", top="3", draw="bars"))
    lines = await lines_of(site, by="service", measure="spans", top="3", every="1m")

    values = Counter((name, query_of(link)["since"][:19]) for link, name, _ in bars)
    assert len(bars) == sum(line["start"] is not None for line in lines) == len(values)
    assert sum(int(value.partition(",")[0]) for _, _, value in bars) == 1_200
    for link, _, value in (*bars[:2], *bars[-2:]):
        assert await spans_of(site, link) == int(value.partition(",")[0])


@each_case(
    ("query", "message"),
    [
        ({"measure": "p42"}, "Measure: expected one of spans, rate"),
        ({"by": "service,service"}, "By: expected at most two different"),
        ({"by": "sevice"}, "did you mean 'service'?"),
    ],
)
async def test_chart_that_is_not_valid_leaves_the_page_with_an_error(
    site: Client, query: dict[str, str], message: str
) -> None:
    page = Document(await page_text(site, **query))

    assert message in page.text
    assert "The newest" in page.text or "traces match" in page.text


async def test_attribute_that_no_span_has_is_not_drawn_and_similar_ones_are_named(site: Client) -> None:
    page = Document(await page_text(site, by="http.rout"))

    assert "No matching span has http.rout." in page.text
    assert "span.http.route" in page.text


async def test_two_clicks_show_p95_by_route_and_deployment_from_the_search(site: Client) -> None:
    page = await page_of(site, "/search")
    chart = next(link for link in page.links if "by=http.route%2Cdeployment" in link)

    shown = Document(await (await site.get(chart)).text())
    week = next(link for link in shown.links if query_of(link).get("since") == "7d")

    assert query_of(week)["measure"] == "p95"
    assert query_of(week)["by"] == "http.route,deployment"


async def test_pages_have_charts_of_rate_errors_and_durations_with_marks_at_deployments(site: Client) -> None:
    for url in ("/", "/services?service=web", "/deployment/dpl_2"):
        text = await (await site.get(url, params=TIMES)).text()

        for title in ("Requests per minute", "Failed"):
            assert f'aria-label="{title}, over time"' in text, url
        assert text.count('class="chart over-time"') == 3
        assert url.startswith("/deployment") or "dpl_2 since" in text


def test_axis_has_round_values_and_includes_the_largest() -> None:
    chart = line_chart("t", [Series("a", [0.0, 730.0])], Axes([Tick(0, "10:00", "2026-01-31T10:00Z")], COUNT))

    assert re.findall(r'class="axis end">([^<]+)<', chart)[:5] == ["0", "200", "400", "600", "800"]
    assert 'data-time="2026-01-31T10:00Z">10:00<' in chart


def test_counts_have_no_fractions_on_the_axis_and_negative_values_are_in_the_chart() -> None:
    small = stacked_bars("t", [Series("a", [1.0])], Axes([], COUNT))
    negative = line_chart("t", [Series("a", [-5.0, 5.0])], Axes([], Unit("{:g}".format)))

    assert re.findall(r'class="axis end">([^<]+)<', small) == ["0", "1"]
    assert re.findall(r'class="axis end">([^<]+)<', negative) == ["-5", "0", "5"]


def test_incomplete_intervals_are_dashed() -> None:
    series = [Series("a", [1.0, 2.0, 3.0], incomplete=[0, 2])]

    assert line_chart("t", series, Axes([], COUNT)).count('class="line partial"') == 2
    assert stacked_bars("t", series, Axes([], COUNT)).count(' partial"') == 2


def test_only_interval_of_a_line_is_a_dot_if_it_is_incomplete() -> None:
    chart = line_chart("t", [Series("a", [None, 7.0, None], incomplete=[1])], Axes([], COUNT))

    assert chart.count('class="line incomplete"') == 1


def test_names_of_markers_do_not_overlap() -> None:
    markers = [Marker(position, f"dpl_{position}", f"dpl_{position}") for position in (1, 1.5, 8)]

    chart = line_chart("t", [Series("a", [1.0] * 10)], Axes([], COUNT), markers, box=Box(720, 100))

    assert re.findall(r'class="axis">(dpl_[^<]+)<', chart) == ["dpl_1", "dpl_8"]
    assert chart.count('class="marker"') == 3
