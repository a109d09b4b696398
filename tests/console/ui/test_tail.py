"""Page of the spans that arrive now."""

from __future__ import annotations

from collections.abc import Mapping

from receiver.console.api.source import Answer, Row
from receiver.console.queries.questions import QUESTIONS
from receiver.console.ui.view import term
from tests.console.ui.conftest import HOSTILE, Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document
from tests.support.cases import each_case

RECEIVED_MS = 1_800_000_000_123


def row_of(name: str, **more: object) -> Row:
    return {
        "received_ms": RECEIVED_MS,
        "start": "2027-01-15T08:00:00.000000000Z",
        "project": "prj_1",
        "service": "web",
        "name": name,
        "kind": "Server",
        "duration_ms": 12.5,
        "status": "Unset",
        "status_message": "",
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "segment": "1-2",
        **more,
    }


class TailSource(FakeSource):
    """Source that returns these spans."""

    def __init__(self, *rows: Row) -> None:
        super().__init__()
        self.rows = list(rows)

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        assert name == "tail"
        await super().ask(name, query)
        QUESTIONS[name].parse(query)
        return Answer(self.rows)


async def test_page_lists_spans_with_links_to_their_traces(start_site: StartSite) -> None:
    client = await start_site(TailSource(row_of("GET /cart"), row_of("GET /", status="Error")))

    page = Document(await (await client.get("/tail")).text())

    for text in ("GET /cart", "12.5 ms", "08:00:00.123", "failed", "aaaaaaaa"):
        assert text in page.text
    assert f"/trace/{'a' * 32}" in page.links


async def test_page_queries_the_present_even_if_its_url_has_times(start_site: StartSite) -> None:
    source = TailSource()
    client = await start_site(source)

    await client.get(
        "/tail?since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z&filter=status%3Derror&project=p"
    )

    assert source.queries == [{"filter": 'project="p" status=error', "since": "1h", "limit": "500"}]


async def test_script_gets_the_rows_received_since_a_time(start_site: StartSite) -> None:
    source = TailSource(row_of("GET /", status="Error", status_message="deadlock"))
    client = await start_site(source)

    answer = await (await client.get(f"/tail/rows?after={RECEIVED_MS}&filter=service%3Dweb")).json()

    assert source.queries[0]["after"] == str(RECEIVED_MS)
    assert source.queries[0]["filter"] == "service=web"
    (row,) = answer["rows"]
    assert (row["name"], row["duration"], row["error"]) == ("GET /", "12.5 ms", "deadlock")
    assert row["received"] == "2027-01-15T08:00:00.123Z"


async def test_link_that_reloads_keeps_the_filter(start_site: StartSite) -> None:
    client = await start_site(TailSource())

    page = Document(await (await client.get("/tail?filter=service%3Dweb")).text())

    assert "/tail?filter=service%3Dweb" in page.links


async def test_span_that_was_stored_twice_has_two_keys(start_site: StartSite) -> None:
    client = await start_site(TailSource(row_of("x"), row_of("x", segment="1-3")))

    answer = await (await client.get("/tail/rows")).json()

    assert len({row["key"] for row in answer["rows"]}) == 2


@each_case("text", HOSTILE)
async def test_hostile_span_stays_text(start_site: StartSite, text: str) -> None:
    hostile = row_of(text, service=text, project=text, trace_id=text, status="Error", status_message=text)
    client = await start_site(TailSource(hostile))

    # A filter has no NUL.
    q = term("name", text) if "\0" not in text else ""
    page = Document(await (await client.get("/tail", params={"filter": q})).text())

    assert page.text.count(text) >= 4
    assert not page.tags & {"img", "svg"}
    assert not any(link.startswith("javascript") for link in page.links)


@each_case("query", ["filter=service%3D", "after=x", "since=yesterday"])
async def test_script_gets_400_for_a_wrong_parameter(site: Client, query: str) -> None:
    answer = await site.get(f"/tail/rows?{query}")

    assert answer.status == 400


async def test_page_without_spans_links_to_the_connect_page(start_site: StartSite) -> None:
    client = await start_site(TailSource())

    page = Document(await (await client.get("/tail")).text())

    assert "No span arrived yet." in page.text
    assert "/connect" in page.links
