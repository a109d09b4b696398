"""Saved views: one document in a file, whose views lead to pages of this receiver only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient

from receiver.console.ui.views.store import BYTES_MAX, NAME, VIEWS_MAX, SavedView, ViewFile
from receiver.console.ui.views.urls import NAME_CHARS_MAX, URL_CHARS_MAX, checked_view, parse_views
from receiver.errors import LimitExceeded, MalformedBody
from receiver.settings import Access, User
from tests.console.ui.conftest import StartReceiver
from tests.support.access import OPERATOR, VIEWER, bearer
from tests.support.cases import each_case

LIMITED = User(name="lim", token="token of lim....", role="operator", projects=("prj_1",))
ACCESS = Access(user=(VIEWER, OPERATOR, LIMITED))
SLOW = {"name": "slow", "url": "/search?filter=duration%3E1s&columns=started%2Chttp.route&since=1h"}
FAILED = {"name": "failed", "url": "/errors?project=prj_1"}


async def save(client: TestClient, *views: dict[str, str]) -> int:  # type: ignore[type-arg]
    answer = await client.post("/api/v1/views", json={"views": views}, headers=bearer(OPERATOR))
    return answer.status


async def document(client: TestClient, user: User = VIEWER) -> bytes:  # type: ignore[type-arg]
    answer = await client.get("/api/v1/views", headers=bearer(user))
    assert answer.status == 200
    return await answer.read()


async def test_exported_document_is_stable_and_imports_again(start: StartReceiver) -> None:
    client = await start(ACCESS)
    assert await save(client, SLOW, FAILED) == 200
    exported = await document(client)

    assert json.loads(exported) == {"views": [FAILED, SLOW]}
    assert exported.count(b"\n") > 8  # each field has a line of its own
    await client.delete("/api/v1/views?name=slow", headers=bearer(OPERATOR))
    answer = await client.post(
        "/api/v1/views", data=exported, headers={**bearer(OPERATOR), "Content-Type": "application/json"}
    )
    assert answer.status == 200
    assert await document(client) == exported


async def test_last_view_of_a_name_stays_and_other_views_are_kept(start: StartReceiver) -> None:
    client = await start(ACCESS)
    await save(client, SLOW, FAILED)

    await save(client, {**SLOW, "url": "/services"})

    assert json.loads(await document(client))["views"] == [FAILED, {"name": "slow", "url": "/services"}]


async def test_viewer_reads_views_and_gets_no_form_that_changes_them(start: StartReceiver) -> None:
    client = await start(ACCESS)
    await save(client, SLOW)

    page = await (await client.get("/views", headers=bearer(VIEWER))).text()
    assert "slow" in page
    assert "<button>Save for all" not in page


async def test_caller_of_a_project_sees_only_views_of_this_project(start: StartReceiver) -> None:
    client = await start(ACCESS)
    await save(client, SLOW, FAILED)

    assert json.loads(await document(client, LIMITED))["views"] == [FAILED]
    assert "slow" not in await (await client.get("/views", headers=bearer(LIMITED))).text()
    assert (await client.delete("/api/v1/views?name=failed", headers=bearer(LIMITED))).status == 403


async def test_form_saves_deletes_and_imports(start: StartReceiver) -> None:
    client, headers = await start(ACCESS), bearer(OPERATOR)

    async def send(path: str, **fields: str) -> str:
        answer = await client.post(f"/views/{path}", data=fields, headers=headers)
        return await answer.text()

    times = "/search?since=2026-01-01T00:00Z&until=2026-01-01T01:00Z"
    assert "The view is saved." in await send("save", name=" slow ", url=times, since="6h")
    assert json.loads(await document(client)) == {"views": [{"name": "slow", "url": "/search?since=6h"}]}
    assert "The view is deleted." in await send("delete", name="slow")
    assert "1 view is imported." in await send("import", document=json.dumps({"views": [FAILED]}))
    assert json.loads(await document(client)) == {"views": [FAILED]}


async def test_form_of_another_site_is_refused(start: StartReceiver) -> None:
    client = await start(ACCESS)
    headers = {**bearer(OPERATOR), "Origin": "https://evil.example"}

    assert (await client.post("/views/save", data=SLOW, headers=headers)).status == 403
    assert (await client.post("/api/v1/views", data=b"{}", headers=bearer(OPERATOR))).status == 415


@each_case(
    "url",
    [
        "https://evil.example/search",
        "//evil.example/search",
        "javascript:alert(1)",
        "/\\evil.example",
        "search",
        "",
        "/receiver/dead/1?confirm=drop",
        "/api/v1/views",
        "/search/../sql",
        "/search?unknown=1",
        "/search?filter=a&filter=b",
        "/search?since=yesterday",
        f"/search?filter={'a' * URL_CHARS_MAX}",
    ],
)
def test_view_leads_to_a_page_with_its_own_parameters_only(url: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        checked_view("a", url)

    assert "evil" not in str(refused.value)


@each_case("name", ["", "  ", "a\nb", "a\0", "a" * (NAME_CHARS_MAX + 1), "\u202eb"])
def test_name_is_a_line_of_printable_text(name: str) -> None:
    with pytest.raises(MalformedBody):
        checked_view(name, "/search")


@each_case(
    "body", [b"", b"[]", b'{"views": [{"name": "a"}]}', b'{"views": [{"name": 1, "url": "/"}]}', b"\xff"]
)
def test_document_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_views(body)


def test_number_and_size_of_views_are_limited(tmp_path: Path) -> None:
    file = ViewFile(tmp_path)
    full = [SavedView(str(number), "/") for number in range(VIEWS_MAX)]
    file.put(full)

    with pytest.raises(LimitExceeded):
        file.put([SavedView("another", "/")])
    with pytest.raises(LimitExceeded):
        file.put([SavedView("0", "/" + "a" * BYTES_MAX)])
    assert len(file.views()) == VIEWS_MAX


async def test_file_of_another_form_is_reported_and_kept(start: StartReceiver, tmp_path: Path) -> None:
    client = await start(ACCESS)
    (tmp_path / NAME).write_text("{")

    answer = await client.get("/api/v1/views", headers=bearer(VIEWER))

    assert answer.status == 503
    assert "expected what `views export` prints" in await answer.text()
    assert await save(client, SLOW) == 503
    assert (tmp_path / NAME).read_text() == "{"


async def test_view_of_an_edited_file_leads_to_no_other_site(start: StartReceiver, tmp_path: Path) -> None:
    client = await start(ACCESS)
    urls = ["//evil/", "javascript:alert(1)", "http://[", "/\\\\evil", "/errors?project=prj_1"]
    (tmp_path / NAME).write_text(json.dumps({"views": [{"name": url, "url": url} for url in urls]}))

    for user in (VIEWER, LIMITED):
        assert [view["url"] for view in json.loads(await document(client, user))["views"]] == urls[-1:]


async def test_view_of_any_name_is_deleted_once(start: StartReceiver) -> None:
    client = await start(ACCESS)
    name = "{checkout}/errors & more"
    await save(client, {"name": name, "url": "/services"})

    answer = await client.delete("/api/v1/views", params={"name": name}, headers=bearer(OPERATOR))

    assert answer.status == 200
    assert json.loads(await document(client)) == {"views": []}
    again = await client.delete("/api/v1/views", params={"name": name}, headers=bearer(OPERATOR))
    assert again.status == 404


async def test_name_stays_text_on_the_page(start: StartReceiver) -> None:
    client = await start(ACCESS)
    await save(client, {"name": "<script>alert(1)</script>", "url": "/"})

    page = await (await client.get("/views", headers=bearer(OPERATOR))).text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
