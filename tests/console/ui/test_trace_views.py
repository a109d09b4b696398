"""Views of a trace: each number of the flame graph and of the statistics leads to that many marked spans."""

from __future__ import annotations

import random
import re
from html import unescape

import orjson
import pytest

from receiver.console.queries.traces import traces
from receiver.console.ui.charts.flame_graph import hue_of
from receiver.engine.store import Store
from tests.console.ui.conftest import FIRST_SPAN_S, HOSTILE_TRACE, Client
from tests.console.ui.test_pages import page_of
from tests.support.cases import RANDOM_CASES, each_case

LINKED, SPAN, LINKING = f"{1:032x}", f"{0:015x}1", f"{0xC0FFEE:032x}"
"""A trace, its root, and a trace with a span that links to the root."""
PAGES = RANDOM_CASES // 4
"""Pages of a trace and a grouping: five, and all in `make test-faults`."""


@pytest.fixture(scope="module", autouse=True)
def linking(shop_store: Store) -> None:
    """Store a span that links to the root of a trace, with an exception and another event."""
    row = {
        "Timestamp": f"{FIRST_SPAN_S + 1}.000000000",
        "TraceId": LINKING,
        "SpanId": "c" * 16,
        "SpanName": "consume",
        "ServiceName": "worker",
        "Duration": 10**9,
        "Links.TraceId": [LINKED],
        "Links.SpanId": [SPAN],
        "Links.TraceState": [""],
        "Links.Attributes": [{}],
        "Events.Timestamp": [f"{FIRST_SPAN_S + 1}.250000000", f"{FIRST_SPAN_S + 1}.500000000"],
        "Events.Name": ["retry", "exception"],
        "Events.Attributes": [{}, {}],
    }
    shop_store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + orjson.dumps(row).decode())


@pytest.mark.random_cases
@each_case("trace_id", [LINKED, HOSTILE_TRACE])
async def test_number_of_the_statistics_leads_to_as_many_marked_spans(site: Client, trace_id: str) -> None:
    for by in ("service", "operation", "http.route", "span.http.route", "status", "resource.absent"):
        text = await (await site.get(f"/trace/{trace_id}?show=statistics&by={by}")).text()
        links = re.findall(
            r'<a (?:class="error" )?href="([^"]*group=[^"]*)">(?:<span.*?</span> )?([\d,]+)</a>', text
        )

        assert links, by
        # The name, the count, the total and the self time of each row.
        assert all(text.count(f'"{link}"') == 4 for link, _ in links if "failed" not in link), by
        for link, count in links:
            query = unescape(link).partition("?")[2]
            ids = orjson.loads(await (await site.get(f"/trace/{trace_id}/matches?{query}")).read())
            assert len(ids) == int(count), (by, link)
        # Few pages in `make test`: each takes as long as twenty of these lists.
        for link, count in random.sample(links, min(len(links), PAGES)):
            marked = (await page_of(site, unescape(link))).text
            assert re.search(rf"{count}\s+span(s are| is) marked", marked), (by, link)


async def test_number_of_a_frame_leads_to_as_many_marked_spans(site: Client) -> None:
    text = await (await site.get(f"/trace/{HOSTILE_TRACE}?show=flame")).text()
    links = re.findall(r'href="([^"]*\?frame=[^"]*)">(?:<span.*?</span> )?([\d,]+)</a>', text)

    assert links
    for link, count in links:
        query = unescape(link).partition("?")[2]
        ids = orjson.loads(await (await site.get(f"/trace/{HOSTILE_TRACE}/matches?{query}")).read())
        assert len(ids) == int(count)


async def test_frame_opens_its_own_graph(site: Client) -> None:
    whole = await page_of(site, f"/trace/{LINKED}?show=flame")
    link = [link for link in whole.links if "frame=" in link and "show=flame" in link][-1]

    zoomed = await page_of(site, link)

    current = next(values for _, values in zoomed.elements if values.get("aria-current") == "true")
    assert current["href"] == link
    assert "db SELECT cart: total" in str(current["aria-label"])


@each_case(
    ("query", "message"),
    [
        ("show=table", "show: expected one of waterfall, flame, statistics"),
        ("show=flame&frame=absent", "frame: expected a frame of this trace"),
        ("show=statistics&by=nothing", "by: expected service, operation"),
        ("show=statistics&sort=age", "sort: expected group, spans"),
        ("row=1&below=2", "unknown parameter"),
    ],
)
async def test_wrong_parameter_of_a_view_is_explained(site: Client, query: str, message: str) -> None:
    assert message in (await page_of(site, f"/trace/{LINKED}?{query}", 400)).words


async def test_statistics_are_sorted_by_their_heads(site: Client) -> None:
    url = f"/trace/{LINKED}?show=statistics&by=service&sort="
    orders = {}
    for sort in ("group", "-group", "total", "-total"):
        text = await (await site.get(url + sort)).text()
        orders[sort] = re.findall(r'<th scope="row"><a [^>]*>(\w+)</a>', text)

    assert orders["group"] == ["db", "web"] == orders["-total"]
    assert orders["-group"] == ["web", "db"] == orders["total"]


async def test_panel_lists_the_spans_that_link_to_its_span_and_the_time_it_searched(site: Client) -> None:
    answer = orjson.loads(await (await site.get(f"/trace/{LINKED}/span/{SPAN}/linking")).read())
    page = await page_of(site, f"/trace/{LINKED}?span={SPAN}&linking=1")
    without = await page_of(site, f"/trace/{LINKING}?span={'c' * 16}&linking=1")

    assert [(row["trace_id"], row["name"]) for row in answer["spans"]] == [(LINKING, "consume")]
    assert f"/trace/{LINKING}?span={'c' * 16}" in page.links
    assert "from 1 h before this trace to 24 h after it" in page.words
    assert "No span links to it." in without.words
    # And in the other direction.
    assert f"/trace/{LINKED}?span={SPAN}" in without.links


async def test_page_of_a_trace_and_its_script_read_the_trace_once(
    site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    outline = traces.outline

    def counted(store: Store, trace_id: str, *arguments: object) -> object:
        read.append(trace_id)
        return outline(store, trace_id, *arguments)  # type: ignore[arg-type]

    whole = await (await site.get(f"/trace/{LINKED}/outline")).read()
    monkeypatch.setattr(traces, "outline", counted)

    await (await site.get(f"/trace/{LINKED}")).read()
    body = await (await site.get(f"/trace/{LINKED}/outline")).read()

    assert read == [LINKED]
    assert body == whole


async def test_bar_of_a_span_has_a_mark_for_each_event_and_another_for_exceptions(site: Client) -> None:
    outline = orjson.loads(await (await site.get(f"/trace/{LINKING}/outline")).read())
    page = await page_of(site, f"/trace/{LINKING}")

    assert outline["events"] == {"0": [[250_000_000, 0], [500_000_000, 1]]}
    marks = [values for name, values in page.elements if name == "rect" and "event" in str(values["class"])]
    assert [(values["class"], values["x"]) for values in marks] == [
        ("event", "99"),
        ("event exception", "199"),
    ]


async def test_two_spans_of_a_trace_are_compared_with_the_spans_below_them(site: Client) -> None:
    child = f"{0:015x}2"
    answer = await site.get(f"/traces/compare?trace={LINKED}&span={SPAN}&span={child}", allow_redirects=False)
    page = await page_of(site, answer.headers["Location"])
    one = await page_of(site, f"/traces/compare?trace={LINKED}&span={SPAN}", 400)
    wrong = await page_of(site, f"/trace/{LINKED}/with/{LINKED}?below_a=absent", 400)

    # Both spans correspond although their names differ; the child of A has no counterpart.
    assert "1 span only in A" in page.words
    assert f"/trace/{LINKED}/with/{LINKED}?below_a={child}&below_b={SPAN}" in page.links
    assert "Select two spans of the trace" in one.words
    assert "expected a span of trace A" in wrong.words


def test_colour_of_a_service_is_that_of_the_waterfall() -> None:
    # As `hueOf` of `waterfall.js` computes them.
    assert [hue_of(name) for name in ("", "web", "db", "é")] == ["hue0", "hue0", "hue6", "hue5"]
