"""Login page: its redirects, its cookie, its limit on failures, and requests of other sites."""

from __future__ import annotations

from urllib.parse import quote

from receiver.console.api.access import COOKIE, FAILURES_MAX, LOGIN, NEXT_CHARS_MAX
from receiver.console.ui.forms import FORM_BYTES_MAX
from receiver.console.ui.login import local_url
from receiver.settings import Access
from tests.console.ui.conftest import StartReceiver
from tests.console.ui.test_pages import Document
from tests.support.access import ADMIN, VIEWER, Headers, bearer, log_in, session
from tests.support.cases import each_case

HTML = {"Accept": "text/html,*/*"}


async def test_page_without_a_session_is_redirected_to_the_login_and_back(start: StartReceiver) -> None:
    client = await start()
    url = "/search?q=name%3D%22a%26b%22&since=1h"

    answer = await client.get(url, headers=HTML, allow_redirects=False)
    assert answer.status == 303
    assert answer.headers["Location"] == f"{LOGIN}?next={quote(url, safe='')}"
    page = Document(await (await client.get(answer.headers["Location"])).text())
    logged_in = await log_in(client, VIEWER.token, page.fields["next"] or "")

    assert (logged_in.status, logged_in.headers["Location"]) == (303, url)
    assert (await client.get("/docs", headers=HTML, allow_redirects=False)).status == 200


async def test_too_long_url_is_not_kept_for_the_login(start: StartReceiver) -> None:
    url = f"/search?q={'a' * NEXT_CHARS_MAX}"

    answer = await (await start()).get(url, headers=HTML, allow_redirects=False)

    assert answer.headers["Location"] == LOGIN


@each_case(("origin", "more"), [("", set()), ("http://{host}", set()), ("https://{host}", {"Secure"})])
async def test_session_cookie_is_kept_from_scripts_and_other_sites(
    start: StartReceiver, origin: str, more: set[str]
) -> None:
    client = await start(Access(session_s=600, user=(VIEWER,)))
    host = f"{client.host}:{client.port}"

    answer = await log_in(client, VIEWER.token, **({"Origin": origin.format(host=host)} if origin else {}))

    (cookie,) = answer.headers.getall("Set-Cookie")
    attributes = {part.strip() for part in cookie.split(";")[1:]}
    assert attributes == {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=600"} | more
    assert answer.headers["Cache-Control"] == "no-store"
    assert VIEWER.token not in cookie


@each_case("token", ["", "wrong", VIEWER.token[:-1], "é\ufffd"])
async def test_wrong_token_gets_no_session(start: StartReceiver, token: str) -> None:
    answer = await log_in(await start(), token, "/search")

    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers
    page = Document(await answer.text())
    assert "This token is not valid." in page.text
    assert not token or token not in page.text


@each_case(
    "url",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example/",
        "https:evil.example",
        "javascript:alert(1)",
        "evil.example",
        "/\t/evil.example",
        "/\r\nSet-Cookie: a=b",
        "/\n//evil.example",
        " //evil.example",
        "",
        "/é",
    ],
)
async def test_login_redirects_to_no_other_site(start: StartReceiver, url: str) -> None:
    assert local_url(url) == "/"

    answer = await log_in(await start(), VIEWER.token, url)

    assert answer.headers["Location"] == "/"


@each_case("url", ["/", "/search?q=a%20b&x=//y", "/trace/ab#c"])
def test_login_redirects_to_paths_of_this_site(url: str) -> None:
    assert local_url(url) == url


async def test_login_page_escapes_the_url(start: StartReceiver) -> None:
    answer = await (await start()).get(LOGIN, params={"next": '/"><script>alert(1)</script>'})

    page = Document(await answer.text())
    assert "script" not in page.tags


async def test_link_of_another_site_is_followed_again_from_the_login_page(start: StartReceiver) -> None:
    client = await start()
    url = f"{LOGIN}?next=/search%3Fq%3Da%2526b"

    answer = await client.get(url, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})
    page = Document(await answer.text())
    with_session = await client.get(url, headers=session(VIEWER), allow_redirects=False)

    assert [each["content"] for each in page.all("meta") if "http-equiv" in each] == [f"0; url={url}"]
    assert "form" not in page.tags
    assert (with_session.status, with_session.headers["Location"]) == (303, "/search?q=a%26b")


async def test_failed_logins_are_limited_even_with_a_valid_token(start: StartReceiver) -> None:
    client = await start()
    for _ in range(FAILURES_MAX):
        assert (await log_in(client, "wrong")).status == 403

    answer = await log_in(client, VIEWER.token)

    assert answer.status == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert "Set-Cookie" not in answer.headers
    assert (await client.get("/api/v1/health", headers=bearer(VIEWER))).status == 200


@each_case(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["origin", "sandbox", "fetch"],
)
@each_case("path", [LOGIN, "/logout", "/api/v1/dead/1/replay"])
async def test_other_site_can_neither_log_in_nor_log_out_nor_change(
    start: StartReceiver, path: str, headers: Headers
) -> None:
    client = await start()

    answer = await client.post(
        path, data={"token": ADMIN.token}, headers={**session(ADMIN), **headers}, allow_redirects=False
    )

    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers


async def test_logout_removes_the_cookie(start: StartReceiver) -> None:
    answer = await (await start()).post("/logout", headers=session(VIEWER), allow_redirects=False)

    assert (answer.status, answer.headers["Location"]) == (303, LOGIN)
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert f'{COOKIE}=""' in answer.headers["Set-Cookie"]


@each_case(
    ("body", "content_type", "status"),
    [
        (b"{}", "application/json", 415),
        (b"a=b&" * 9, "application/x-www-form-urlencoded", 400),
        (b"token=" + b"a" * FORM_BYTES_MAX, "application/x-www-form-urlencoded", 413),
        (b"token=%ff%00", "application/x-www-form-urlencoded; charset=nothing", 403),
    ],
)
async def test_unusual_form_is_refused(
    start: StartReceiver, body: bytes, content_type: str, status: int
) -> None:
    answer = await (await start()).post(LOGIN, data=body, headers={"Content-Type": content_type})

    assert answer.status == status


async def test_page_shows_the_name_of_the_session_and_a_logout(start: StartReceiver) -> None:
    client = await start()

    pages = [await client.get("/", headers=proof(VIEWER)) for proof in (session, bearer)]

    assert ["Log out vera" in await page.text() for page in pages] == [True, False]
    assert pages[0].headers["Referrer-Policy"] == "same-origin"
