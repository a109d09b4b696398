"""Names of projects on the pages, and the removed projects on the page of the platform."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from receiver.console.api.source import Answer
from receiver.console.ui.choices import Choices
from receiver.platform.installations.projects import Projects, removed_projects
from receiver.settings import Access, User
from tests.console.ui.conftest import StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_choices import Deployments, row, view
from tests.console.ui.test_pages import Document
from tests.console.ui.test_tail import row_of
from tests.support.access import OPERATOR, USERS, VIEWER, Client, receiver_with, session
from tests.support.cases import each_case
from tests.support.faulty_disk import WRITE_CALLS, DiskFault, process_with
from tests.support.receiver_facts import FactsOfTest

DAY_S = 86_400.0
NOW_S = time.time()
ODD = "prj/../ä b"
LIMITED = User(name="lim", token="token of lim....", role="operator", projects=("prj_due",))


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    """Return projects that were removed a month ago and yesterday, and a project that was not removed."""
    projects = Projects(tmp_path / "platform")
    for name, age_days in (("prj_due", 31), ("prj_new", 1), (ODD, 2)):
        projects.created(name, f"name of {name}", NOW_S - 99 * DAY_S)
        projects.removed(name, NOW_S - age_days * DAY_S)
    projects.created("prj_1", "<b>shop</b>", NOW_S)
    return projects


@pytest.fixture
async def client(projects: Projects, tmp_path: Path) -> AsyncIterator[Client]:
    assert projects.all()
    async with receiver_with(tmp_path, Access(user=(*USERS.user, LIMITED))) as client:
        yield client


async def listed(client: Client) -> dict[str, dict[str, object]]:
    answer = await client.get("/api/v1/platform/projects", headers=session(VIEWER))
    assert answer.status == 200
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert lines[-1] == {"end": {"count": len(lines) - 1}}
    return {line["id"]: line for line in lines[:-1]}


async def page(client: Client, user: User) -> str:
    answer = await client.get("/platform", headers=session(user))
    assert answer.status == 200
    return await answer.text()


async def test_p50_removed_projects_are_listed_with_the_day_they_are_due(client: Client) -> None:
    listing = await listed(client)

    assert list(listing) == ["prj_due", ODD, "prj_new"]
    assert listing["prj_due"]["due_at_s"] == pytest.approx(NOW_S - DAY_S)
    text = await page(client, VIEWER)
    assert text.count("due for deletion since") == 1
    assert text.count("kept until") == 2
    assert "Keep the spans" not in text


@pytest.mark.parametrize("project_id", ["prj_due", ODD])
async def test_operator_keeps_the_spans_of_a_removed_project_by_the_form(
    client: Client, projects: Projects, project_id: str
) -> None:
    url = f"/platform/projects/{quote(project_id, safe='')}/keep"
    assert f'action="{url}"' in await page(client, OPERATOR)

    answer = await client.post(url, data={"x": "1"}, headers=session(OPERATOR))

    assert answer.status == 200
    assert "are kept." in await answer.text()
    assert "kept by an operator" in await page(client, VIEWER)
    listing = await listed(client)
    assert [name for name, project in listing.items() if project["is_kept"]] == [project_id]
    projects = Projects(projects._directory.path.parent)  # noqa: SLF001 - read again
    assert [project.id for project in projects.all() if project.is_revoked] == [project_id]


async def test_removed_project_is_kept_by_the_api_once_and_again(client: Client) -> None:
    for _ in range(2):
        answer = await client.post(
            "/api/v1/platform/projects/prj_due/keep", json={}, headers=session(OPERATOR)
        )
        assert answer.status == 200


@each_case(
    ("user", "project_id", "status"),
    [(VIEWER, "prj_due", 403), (LIMITED, "prj_due", 403), (OPERATOR, "prj_1", 404), (OPERATOR, "x", 404)],
)
async def test_request_to_keep_a_project_is_refused(
    client: Client, user: User, project_id: str, status: int
) -> None:
    for url in (f"/api/v1/platform/projects/{project_id}/keep", f"/platform/projects/{project_id}/keep"):
        is_form = not url.startswith("/api")
        body = {"data": {"x": "1"}} if is_form else {"json": {}}
        answer = await client.post(url, headers=session(user), **body)  # type: ignore[arg-type]  # one of both
        assert answer.status == status


async def test_disk_error_leaves_the_project_as_it_was(client: Client) -> None:
    with process_with(
        DiskFault(WRITE_CALLS, 1, is_permanent=True, error=lambda: OSError(28, "No space left"))
    ):
        url = "/api/v1/platform/projects/prj_due/keep"
        answer = await client.post(url, json={}, headers=session(OPERATOR))

    assert answer.status == 503
    assert not (await listed(client))["prj_due"]["is_kept"]


def test_project_that_was_created_again_is_not_removed(projects: Projects) -> None:
    projects.created("prj_due", "again", NOW_S)

    assert "prj_due" not in {project.id for project in removed_projects(projects.all(), 30)}


async def test_p50_name_appears_beside_the_id_in_the_pickers(projects: Projects) -> None:
    offered, source = Choices(), Deployments()
    facts = view(source).facts
    original = facts.project_name
    facts.project_name = projects.name
    try:
        await offered.load(view(source))
        texts = [choice.text for choice in offered.of(view(source))["project"]]
        choices = offered.of(view(source, project="prj_due"))["project"]
    finally:
        facts.project_name = original

    assert texts[1].startswith("<b>shop</b> (prj_1): 6 spans")
    assert [choice.text for choice in choices if choice.value == "prj_due"] == ["name of prj_due (prj_due)"]


class RowsOfAProject(FakeSource):
    """Source whose results have one row, of a project."""

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        seen = {**row("prj_1", "dpl_1", 5), "first_seen": "2027-01-15T07:00:00Z", "errors": 0}
        counted = {
            "group": "prj_1",
            "start": query.get("since", ""),
            "spans": 1,
            "errors": 0,
            "error_rate": 0.0,
            "rate_per_s": 1.0,
        }
        durations = {"p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0}
        rows = {"tail": [row_of("GET /")], "deployments": [seen], "red": [{**counted, **durations}]}
        return Answer(rows.get(name, []))


@each_case("path", ["/", "/compare", "/tail", "/choices"])
async def test_p50_name_appears_beside_the_id_on_pages(
    start_site: StartSite, facts: FactsOfTest, path: str
) -> None:
    facts.platform.projects.created("prj_1", "<b>shop</b>", NOW_S)
    client = await start_site(RowsOfAProject())

    text = await (await client.get(path)).text()

    assert "<b>shop</b> (prj_1)" in (text if path == "/choices" else Document(text).text)
    assert path == "/choices" or "<b>shop" not in text
