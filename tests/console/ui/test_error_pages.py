"""Errors outside of a page's frame: a browser gets a page with links, a program gets problem details."""

from __future__ import annotations

from receiver.console.ui.templating import sentence
from receiver.http.protocol import PROBLEM
from receiver.settings import Access, User
from tests.console.ui.conftest import StartReceiver
from tests.console.ui.test_pages import Document
from tests.support.access import OPERATOR, VIEWER, Client, session
from tests.support.cases import each_case

HTML = {"Accept": "text/html,*/*;q=0.8"}


async def error_page(client: Client, method: str, path: str, status: int, **headers: str) -> Document:
    answer = await client.request(method, path, headers={**HTML, **session(VIEWER), **headers})
    assert (answer.status, answer.content_type) == (status, "text/html")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    return Document(await answer.text())


@each_case(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/search/", 404),
        ("GET", "/logout", 405),
        ("POST", "/search", 405),
        ("GET", "/<script>alert(1)</script>", 404),
    ],
)
async def test_unknown_page_is_explained_with_links(
    start: StartReceiver, method: str, path: str, status: int
) -> None:
    page = await error_page(await start(), method, path, status)

    assert "This page does not exist" in page.text
    assert "API" not in page.text
    assert {"/", "/search"} <= set(page.links)
    assert "script" not in page.tags


async def test_method_that_a_page_does_not_have_keeps_its_header(start: StartReceiver) -> None:
    answer = await (await start()).get("/logout", headers={**HTML, **session(VIEWER)})

    assert answer.headers["Allow"] == "POST"


async def test_request_of_another_origin_is_explained_on_a_page(start: StartReceiver) -> None:
    page = await error_page(await start(), "GET", "/search", 403, Origin="https://evil.example")

    assert "This is not allowed" in page.text
    assert "A page of another origin sent this request" in page.text


@each_case(
    ("method", "path"), [("GET", "/receiver"), ("GET", "/connect"), ("POST", "/receiver/dead/x/replay")]
)
async def test_page_of_all_projects_is_refused_without_links_to_such_pages(
    start: StartReceiver, method: str, path: str
) -> None:
    user = User(name="lim", token="token of lim....", role="operator", projects=("prj_1",))

    page = await error_page(await start(Access(user=(user,))), method, path, 403, **session(user))

    assert "This page shows data of all projects; your user is limited to some." in page.text
    assert page.links == ["/", "/search"]


@each_case("action", ["replay", "drop"])
async def test_failed_change_of_a_dead_letter_links_back_to_it(start: StartReceiver, action: str) -> None:
    page = await error_page(await start(), "POST", f"/receiver/dead/a%2Fb/{action}", 403)

    assert "The role 'viewer' does not allow this; expected the role 'operator'." in page.text
    assert page.links == ["/receiver/dead/a%2Fb", "/", "/search", "/receiver"]


@each_case(
    ("message", "text"), [("the disk is full; retry", "The disk is full; retry."), ("It ends.", "It ends.")]
)
def test_message_is_shown_as_a_sentence(message: str, text: str) -> None:
    assert sentence(message) == text


async def test_form_without_a_session_is_redirected_to_the_login(start: StartReceiver) -> None:
    page = await error_page(await start(), "POST", "/nothing", 401, Cookie="")

    assert "You are not logged in" in page.text
    assert page.links == ["/login"]


@each_case(
    ("path", "accept", "status"),
    [
        ("/api/v1/nothing", HTML["Accept"], 404),
        ("/api/v1/nothing", "application/json", 404),
        ("/nothing", "*/*", 404),
        ("/logout", "application/json", 405),
    ],
)
async def test_program_gets_problem_details(
    start: StartReceiver, path: str, accept: str, status: int
) -> None:
    answer = await (await start()).get(path, headers={**session(OPERATOR), "Accept": accept})

    assert (answer.status, answer.content_type) == (status, PROBLEM)
