"""Page that compares two traces: its sentence, its rows, and the values that differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from receiver.console.api.source import Result, Row
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import COMPARED_SPANS_MAX
from receiver.console.queries.traces.trace_comparison import differences
from receiver.console.queries.traces.trace_model import trace_of
from receiver.console.ui.document import HEADERS
from receiver.console.ui.pages.trace_comparison import ROWS_MAX, sentence
from tests.console.ui.conftest import HOSTILE, HOSTILE_TRACE, Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, page_of, query_of
from tests.support.cases import each_case
from tests.support.traces import span

MS = 1_000_000
A, B = "a" * 32, "b" * 32


def timed(span_id: str, parent: str, start_ms: int, end_ms: int, **columns: Any) -> Row:  # noqa: ANN401
    return span(span_id, parent, start_ms * MS, end_ms * MS, **columns)


def sentence_of(first: Sequence[Row], second: Sequence[Row]) -> str:
    a, b = trace_of(first), trace_of(second)
    return sentence(a, b, list(differences(a, b)))


class TwoTraces(FakeSource):
    """Source of traces by their ids."""

    def __init__(self, **traces: Sequence[Row]) -> None:
        super().__init__()
        self.traces = {name * 32: rows for name, rows in traces.items()}

    async def outline(
        self, trace_id: str, read: Callable[[list[Row]], Result], by: GroupKey | None = None
    ) -> Result | None:
        assert by is None
        rows = self._rows(trace_id)
        return read(rows) if rows else None

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        return next((row for row in self._rows(trace_id) if row["SpanId"] == span_id), None)

    def _rows(self, trace_id: str) -> list[Row]:
        return [
            {**row, "TraceId": trace_id, "ProjectId": "", "DeploymentId": ""}
            for row in self.traces.get(trace_id, ())
        ]


def test_sentence_names_the_operation_whose_critical_time_changed_most() -> None:
    first = [timed("1", "", 0, 100), timed("2", "1", 10, 90), timed("3", "2", 20, 30)]
    second = [timed("1", "", 0, 412), timed("2", "1", 10, 400), timed("3", "2", 20, 320)]

    assert sentence_of(first, second) == (
        "B takes 312 ms longer (A 100 ms, B 412 ms); shop span 3 takes 290 ms more of the critical path."
    )
    assert sentence_of(second, first) == (
        "B takes 312 ms less (A 412 ms, B 100 ms); shop span 3 takes 290 ms less of the critical path."
    )


def test_spans_of_one_trace_alone_account_for_their_time() -> None:
    first = [timed("1", "", 0, 100)]
    second = [timed("1", "", 0, 300), timed("2", "1", 50, 150), timed("4", "1", 150, 250, SpanName="span 2")]

    assert sentence_of(first, second) == (
        "B takes 200 ms longer (A 100 ms, B 300 ms); shop span 2 takes 200 ms more of the critical path; "
        "2 spans only in B."
    )


def test_change_of_an_operation_may_exceed_the_change_of_the_trace() -> None:
    first = [timed("1", "", 0, 100), timed("2", "1", 0, 50)]
    second = [timed("1", "", 0, 138), timed("2", "1", 0, 108)]

    assert sentence_of(first, second) == (
        "B takes 38 ms longer (A 100 ms, B 138 ms); shop span 2 takes 58 ms more of the critical path."
    )


def test_sentence_counts_the_spans_that_failed_in_one_trace_alone() -> None:
    first = [timed("1", "", 0, 100, StatusCode="Error"), timed("2", "1", 0, 5, StatusCode="Error")]
    second = [timed("1", "", 0, 100, StatusCode="Error"), timed("2", "1", 0, 5), timed("3", "1", 5, 6)]

    assert sentence_of(first, second) == "Both take 100 ms; 1 span only in B; 1 span failed only in A."


@each_case(("a_ms", "b_ms"), [(0, 0), (1_000, 1_009), (1_000, 991)])
def test_nearly_equal_durations_are_the_same(a_ms: int, b_ms: int) -> None:
    text = sentence_of([timed("1", "", 0, a_ms)], [timed("1", "", 0, b_ms)])

    assert text.startswith("Both take ")


async def test_rows_have_both_durations_and_the_change(start_site: StartSite) -> None:
    first = [timed("1", "", 0, 100), timed("2", "1", 10, 20), timed("3", "1", 30, 40)]
    second = [timed("1", "", 0, 90), timed("2", "1", 10, 21), timed("4", "1", 30, 40)]

    page = await page_of(await start_site(TwoTraces(a=first, b=second)), f"/trace/{A}/with/{B}")

    text = page.words
    assert "span 1 100 ms 90 ms −10 ms" in text
    assert "span 2 10 ms 11 ms +1 ms" in text
    assert "span 3 (only in A) 10 ms – –" in text
    assert "span 4 (only in B) – 10 ms –" in text
    bars = [attributes["class"] for attributes in page.all("rect")]
    assert bars == ["bar of-a", "bar of-b"] * 2 + ["bar of-a", "bar of-b"]


async def test_details_show_different_values_and_count_equal_values(start_site: StartSite) -> None:
    same = {"http.route": "/cart", "region": "eu"}
    first = [timed("1", "", 0, 100, SpanAttributes={**same, "user.id": "u1", "only.a": "x"})]
    attributes = {"SpanAttributes": {**same, "user.id": "u2"}, "ResourceAttributes": {"v": "2"}}
    second = [timed("5", "", 1, 101, SpanName="span 1", **attributes)]

    page = await page_of(await start_site(TwoTraces(a=first, b=second)), f"/trace/{A}/with/{B}?a=1&b=5")

    text = page.words
    assert "user.idu1u2only.ax–v–2" in text
    # Both attributes, service, kind, status, duration, project and deployment.
    assert "8 equal values are hidden." in text
    assert "http.route" not in text


async def test_pair_with_the_largest_change_is_chosen_by_default(start_site: StartSite) -> None:
    first = [timed("1", "", 0, 100), timed("2", "1", 10, 20)]
    second = [timed("1", "", 0, 200), timed("2", "1", 10, 110)]
    client = await start_site(TwoTraces(a=first, b=second))

    page = await page_of(client, f"/trace/{A}/with/{B}")
    other = await page_of(client, f"/trace/{A}/with/{B}?a=1&b=1")

    headings = [re.findall(r"\n  (shop span \d)\n", each.text) for each in (page, other)]
    assert headings == [["shop span 2"], ["shop span 1"]]


async def test_large_traces_are_shown_in_parts(start_site: StartSite) -> None:
    rows = [timed("0", "", 0, 1), *(timed(str(n), "0", 0, 1) for n in range(1, ROWS_MAX + 5))]
    client = await start_site(TwoTraces(a=rows, b=rows))

    first = await page_of(client, f"/trace/{A}/with/{B}")
    rest = await page_of(client, f"/trace/{A}/with/{B}?row={ROWS_MAX}")

    assert "Rows 1 to 1,000 of 1,005." in first.text
    assert f"?row={ROWS_MAX}" in first.links
    assert "Rows 1,001 to 1,005 of 1,005." in rest.text
    assert "?row=0" in rest.links


async def test_traces_that_are_too_large_are_refused(start_site: StartSite) -> None:
    row = timed("1", "", 0, 1)
    source = TwoTraces(a=[row], b=[row] * (COMPARED_SPANS_MAX + 1))

    # The frame may be sent first, with status 200.
    answer = await (await start_site(source)).get(f"/trace/{A}/with/{B}")

    page = Document(await answer.text())
    assert f"a trace has over {COMPARED_SPANS_MAX} spans; expected two smaller traces" in page.text


async def test_trace_that_is_not_stored_is_named(start_site: StartSite) -> None:
    page = await page_of(await start_site(TwoTraces(a=[timed("1", "", 0, 1)])), f"/trace/{A}/with/{B}", 404)

    assert f"No span of trace {B} is stored" in page.text
    assert A not in page.text


async def test_hostile_texts_of_both_traces_stay_text(site: Client) -> None:
    page = await page_of(site, f"/trace/{HOSTILE_TRACE}/with/{1:032x}")

    assert "script" not in {tag for tag, attributes in page.elements if not attributes.get("src")}
    assert all(text in page.text for text in HOSTILE)


async def test_stored_traces_are_compared(site: Client) -> None:
    page = await page_of(site, f"/trace/{1:032x}/with/{1_801:032x}")

    assert re.search(r"(B takes|Both take) ", page.text)
    assert "deployment" in page.text  # differs between the first and the second half of the hour
    assert f"/trace/{1_801:032x}/with/{1:032x}" in page.links


async def test_form_of_the_trace_page_redirects_to_the_comparison(site: Client) -> None:
    page = await page_of(site, f"/trace/{1:032x}")
    names = [attributes.get("name") for attributes in page.all("input")]

    answer = await site.get(f"/traces/compare?id={1:032x}&id={HOSTILE_TRACE}", allow_redirects=False)

    assert names.count("id") == 2
    assert (answer.status, answer.headers["Location"]) == (303, f"/trace/{1:032x}/with/{HOSTILE_TRACE}")
    assert HEADERS.items() <= dict(answer.headers).items()


async def test_selection_of_other_than_two_traces_links_back_to_the_search(site: Client) -> None:
    search = await page_of(site, "/search?filter=service%3Dweb&selection=duration%3E1ms&project=prj_1")
    elements = itertools.dropwhile(lambda element: element[1].get("id") != "pair", search.elements)
    fields = {
        attributes["name"] or "": attributes["value"] or ""
        for tag, attributes in elements
        if tag == "input" and attributes.get("type") == "hidden"
    }
    chosen = {"filter": "service=web", "selection": "duration>1ms", "project": "prj_1"}
    assert fields.items() >= chosen.items()

    for ids in ([], [A], [A, B, A]):
        answer = await site.get("/traces/compare", params=[*fields.items(), *(("id", each) for each in ids)])

        page = Document(await answer.text())
        assert answer.status == 400
        assert "Select two traces in the search results, then compare them." in page.text
        (back,) = [link for link in page.links if link.startswith("/search?") and "filter=" in link]
        assert query_of(back) == fields


async def test_redirect_stays_on_this_site(site: Client) -> None:
    answer = await site.get(
        "/traces/compare?id=//example.org/x&id=%0d%0aSet-Cookie:+a", allow_redirects=False
    )

    assert answer.headers["Location"] == "/trace/%2F%2Fexample.org%2Fx/with/%0D%0ASet-Cookie%3A%20a"
    assert "Set-Cookie" not in answer.headers


async def test_traces_of_a_search_can_be_selected(site: Client) -> None:
    page = await page_of(site, "/search?filter=service%3Dweb")

    boxes = [attributes for attributes in page.all("input") if attributes.get("type") == "checkbox"]
    assert len(boxes) == 100
    assert {(box["form"], box["name"]) for box in boxes} == {("pair", "id")}
    assert ("pair", "/traces/compare") in {(each.get("id"), each.get("action")) for each in page.all("form")}
