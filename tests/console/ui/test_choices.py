"""Projects and deployments that the frame of every page offers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from receiver.console.api.access import Caller
from receiver.console.api.source import Answer, Row
from receiver.console.ui import choices
from receiver.console.ui.choices import Choices
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.view import View
from receiver.errors import StoreTrouble
from tests.console.ui.conftest import Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document
from tests.console.ui.test_view import FACTS

NOW_S = 1_800_000_000.0


def row(project: str, deployment: str, spans: int, last_seen: str = "2027-01-15T07:59:30Z") -> Row:
    return {"project": project, "deployment": deployment, "spans": spans, "last_seen": last_seen}


ROWS = [
    row("prj_1", "dpl_2", 5, "2027-01-15T07:59:58Z"),
    row("prj_2", "dpl_9", 1_000),
    row("prj_1", "dpl_1", 1),
    row("", "", 7),
]


class Deployments(FakeSource):
    """Source that counts the queries of deployments."""

    def __init__(self, rows: list[Row] = ROWS, delay_s: float = 0) -> None:
        super().__init__(delay_s)
        self.rows = rows
        self.query_count = 0

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        await super().ask(name, query)
        self.query_count += name == "deployments" and query["since"] == choices.SINCE
        return Answer(self.rows if name == "deployments" else [])


def view(source: FakeSource, *projects: str, facts: ReceiverFacts = FACTS, **query: str) -> View:
    caller = Caller("ann", "viewer", "token", projects)
    return View("/errors", query, NOW_S, source, {}, facts=facts, caller=caller)


async def test_spans_of_a_project_are_summed_and_deployments_belong_to_the_chosen_project() -> None:
    offered, source = Choices(), Deployments()
    await offered.load(view(source))

    lists = offered.of(view(source))
    assert [choice.text for choice in lists["project"]] == [
        "prj_2: 1,000 spans, 30 s ago",
        "prj_1: 6 spans, 2 s ago",
    ]
    assert [choice.value for choice in lists["deployment"]] == ["dpl_2", "dpl_9", "dpl_1"]
    lists = offered.of(view(source, project="prj_1"))
    assert [choice.text for choice in lists["deployment"]] == [
        "dpl_2: 5 spans, 2 s ago",
        "dpl_1: 1 span, 30 s ago",
    ]


async def test_chosen_value_without_spans_is_still_offered() -> None:
    lists = Choices().of(view(Deployments(), project="prj_old", deployment="dpl_old"))

    assert {name: [choice.value for choice in offered] for name, offered in lists.items()} == {
        "project": ["prj_old"],
        "deployment": ["dpl_old"],
    }


async def test_users_with_other_projects_never_share_a_list() -> None:
    offered = Choices()
    await offered.load(view(Deployments()))
    await offered.load(view(Deployments([row("prj_1", "dpl_1", 1)]), "prj_1"))

    assert [choice.value for choice in offered.of(view(Deployments(), "prj_1"))["project"]] == ["prj_1"]
    assert not offered.of(view(Deployments(), "prj_2"))["project"]
    assert len(offered.of(view(Deployments()))["project"]) == 2


async def test_list_is_cached_in_proportion_to_the_time_of_its_query() -> None:
    for seconds, cached_s in ((0.001, choices.CACHED_S_MIN), (2.0, 2.0 * choices.CACHED_PER_COST)):
        times = iter([0.0, seconds, seconds + cached_s - 0.1, seconds + cached_s, seconds + cached_s])
        offered, source = Choices(lambda times=times: next(times)), Deployments()  # type: ignore[misc]
        for expected in (1, 1, 2):
            await offered.load(view(source))
            assert source.query_count == expected


async def test_failed_query_keeps_the_previous_list() -> None:
    times = iter([0.0, 0.0, 100.0])
    offered = Choices(lambda: next(times))
    await offered.load(view(Deployments()))
    await offered.load(view(FakeSource(error=StoreTrouble("away", code=210))))

    assert len(offered.of(view(Deployments()))["project"]) == 2


async def test_frame_has_a_form_that_keeps_the_other_parameters(start_site: StartSite) -> None:
    client = await start_site(Deployments())

    query = {"project": "prj_1", "deployment": "", "filter": "status=error", "since": "6h"}
    answer = await client.get("/errors", params=query)

    page = Document(await answer.text())
    hidden = {each["name"]: each["value"] for each in page.all("input") if each.get("type") == "hidden"}
    assert [each["value"] for each in page.all("option") if "selected" in each] == ["prj_1"]
    # The form of the time range keeps the project.
    assert hidden == {"filter": "status=error", "since": "6h", "project": "prj_1"}
    assert [each["name"] for each in page.all("select")] == ["project", "deployment"]


async def test_slow_list_does_not_delay_the_frame(start_site: StartSite) -> None:
    client = await start_site(Deployments(delay_s=600))

    answer = await client.get("/errors")
    async with asyncio.timeout(30):
        begin = await answer.content.readuntil(b"</h1>")
    answer.close()

    assert b"What fails?" in begin


async def test_script_gets_the_same_lists(site: Client, start_site: StartSite) -> None:
    client = await start_site(Deployments())

    lists = await (await client.get("/choices", params={"project": "prj_2"})).json()
    assert [choice["value"] for choice in lists["deployment"]] == ["dpl_9"]
    assert (await site.get("/choices")).status == 200
