"""Installation of the platform's integration through the pages: once, only by its user, and never a leak."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from receiver.console.api.access import ACCESS, LOGIN
from receiver.console.api.sessions import STATE_S
from receiver.platform.installations.installing import CODE_CHARS_MAX
from receiver.platform.installations.records import SCOPES_MAX, TEXT_CHARS_MAX
from receiver.settings import Access, Proxy, User
from tests.console.ui.conftest import SECOND_ADMIN
from tests.support.access import ADMIN, OPERATOR, USERS, VIEWER, Client, receiver_with, session
from tests.support.cases import each_case
from tests.support.installing import HTML, begin, come_back, refusal, shown, stored, token_of
from tests.support.token_server import INSTALL_URL, REDIRECT_URL, TOKEN, PlatformServer, settings_of


async def test_p31_install_redirects_to_the_platform_with_the_redirect_url_and_a_state(
    client: Client,
) -> None:
    answer = await client.get("/platform/install", headers=session(ADMIN), allow_redirects=False)

    target = urlsplit(answer.headers["Location"])
    query = parse_qs(target.query)
    assert answer.headers["Location"].startswith(INSTALL_URL)
    assert query["integration"] == ["traces"]
    assert query["redirect_uri"] == [REDIRECT_URL]
    assert await begin(client) != query["state"][0]


async def test_p31_code_is_exchanged_once(client: Client, platform: PlatformServer, tmp_path: Path) -> None:
    state = await begin(client)

    first = await come_back(client, code="code-1", state=state)
    again = await come_back(client, code="code-1", state=state)
    other_code = await come_back(client, code="code-2", state=state)
    other_state = await come_back(client, code="code-1", state=await begin(client))

    assert first.status == 303
    for answer in (again, other_code, other_state):
        assert "This link was used before" in await refusal(answer)
    assert len(platform.forms) == 1
    assert [each.id for each in stored(tmp_path)] == ["icfg_a1"]


async def test_p31_concurrent_submissions_exchange_the_code_once(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    state = await begin(client)

    answers = await asyncio.gather(*(come_back(client, code="code-1", state=state) for _ in range(8)))

    assert sorted(answer.status for answer in answers) == [303] + [400] * 7
    assert len(platform.forms) == 1
    assert token_of(tmp_path) == TOKEN


async def test_p31_code_is_not_sent_again_after_a_restart(platform: PlatformServer, tmp_path: Path) -> None:
    platform.status = 500
    async with receiver_with(tmp_path, platform=platform.settings) as client:
        state = await begin(client)
        await refusal(await come_back(client, code="code-1", state=state), 502)
    platform.status = 200

    async with receiver_with(tmp_path, platform=platform.settings) as client:
        assert "used before" in await refusal(await come_back(client, code="code-1", state=state))

    assert len(platform.forms) == 1
    assert "code-1" not in "".join(path.read_text() for path in (tmp_path / "platform").glob("*.json"))


async def test_p31_state_expires_as_the_code_does(
    client: Client, platform: PlatformServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = await begin(client)
    assert client.app is not None
    monkeypatch.setattr(client.app[ACCESS], "_now", lambda: time.time() + STATE_S + 1)
    later = session(ADMIN, lifetime_s=2 * STATE_S)

    answer = await client.get(
        "/platform/installed", params={"code": "c", "state": state}, headers={**HTML, **later}
    )

    assert "The installation was begun over 30 minutes ago" in await refusal(answer)
    assert platform.forms == []


@pytest.mark.parametrize("named", [{"configurationId": "icfg_u1", "teamId": "team_u", "odd": "1"}, {}])
async def test_p31_nothing_but_code_and_state_is_required(
    client: Client, platform: PlatformServer, tmp_path: Path, named: dict[str, str]
) -> None:
    platform.answer = {"access_token": TOKEN, "team_id": None}

    answer = await come_back(client, code="code-1", state=await begin(client), **named)

    (added,) = stored(tmp_path)
    assert answer.status == 303
    assert added.id == "icfg_u1" if named else added.id.startswith("unnamed-")
    assert added.team_id == ""
    assert added.scopes is None


async def test_p32_exchange_sends_the_four_fields_and_keeps_the_team(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    platform.answer |= {
        "scope": "deployment:read project:write",
        "refresh_token": "r",
        "x": {"y": TOKEN},
        "z": 1,
    }

    await come_back(client, code="code-1", state=await begin(client), configurationId="icfg_other")

    assert platform.forms == [
        {
            "client_id": "oac_1",
            "client_secret": "secret of the client",
            "code": "code-1",
            "redirect_uri": REDIRECT_URL,
        }
    ]
    (added,) = stored(tmp_path)
    assert (added.id, added.team_id, added.user_id, added.state) == ("icfg_a1", "team_1", "user_1", "active")
    assert added.scopes == ("deployment:read", "project:write")
    assert added.other["z"] == 1
    assert added.other["token_type"] == "Bearer"
    assert "refresh_token" not in added.other
    assert "x" not in added.other
    assert token_of(tmp_path) == TOKEN


async def test_p32_texts_of_the_answer_are_limited(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    long = "x" * 100_000
    platform.answer |= {
        "user_id": long,
        "team_id": long,
        "scopes": [f"{n}{long}" for n in range(99)],
        "z": long,
    }

    await come_back(client, code="code-1", state=await begin(client))

    (added,) = stored(tmp_path)
    assert (len(added.user_id), len(added.team_id)) == (TEXT_CHARS_MAX, TEXT_CHARS_MAX)
    assert added.scopes is not None
    assert [len(scope) for scope in added.scopes] == [TEXT_CHARS_MAX] * SCOPES_MAX
    assert added.other == {}


async def test_p30_reinstallation_gets_a_row_of_its_own(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    await come_back(client, code="code-1", state=await begin(client))
    platform.answer["installation_id"] = "icfg_b2"

    answer = await come_back(client, code="code-2", state=await begin(client))

    page = await shown(client, answer.headers["Location"])
    assert "The integration is installed as icfg_b2." in page.text
    assert {each.id for each in stored(tmp_path)} == {"icfg_a1", "icfg_b2"}
    assert "icfg_a1" in page.text


async def test_p30_id_that_was_used_before_is_refused(
    client: Client, platform: PlatformServer, tmp_path: Path
) -> None:
    await come_back(client, code="code-1", state=await begin(client))
    platform.answer["access_token"] = "another token"

    answer = await come_back(client, code="code-2", state=await begin(client))

    assert "an id that was used before" in await refusal(answer, 502)
    assert token_of(tmp_path) == TOKEN


async def test_token_is_in_no_answer_header_or_log(client: Client, tmp_path: Path) -> None:
    with capture_logs() as logged:
        answer = await come_back(
            client, code="code-1", state=await begin(client), next="https://platform.test/n"
        )
        page = await shown(client, answer.headers["Location"])

    assert token_of(tmp_path) == TOKEN
    assert TOKEN not in f"{answer.headers} {page.text} {logged}"
    assert "code-1" not in f"{answer.headers} {page.text} {logged}"
    assert [line["event"] for line in logged] == ["integration installed", "change requested"]
    assert logged[1]["path"] == "/platform/installed"
    assert answer.headers["Cache-Control"] == "no-store"


@each_case(
    "forged",
    [
        pytest.param("", id="empty"),
        pytest.param("x" * 5_000, id="long"),
        pytest.param(f"{int(time.time()) + 60}.{'n' * 22}.{'0' * 64}", id="wrong MAC"),
        pytest.param("9999999999.é.0", id="not ASCII"),
        pytest.param(session(ADMIN)["Cookie"].partition("=")[2], id="cookie of a session"),
    ],
)
async def test_forged_state_changes_nothing(client: Client, platform: PlatformServer, forged: str) -> None:
    answer = await come_back(client, code="code-1", state=forged)

    assert "This link does not come from an installation that you began here" in await refusal(answer)
    assert platform.forms == []


async def test_state_with_another_character_is_refused(client: Client, platform: PlatformServer) -> None:
    state = await begin(client)
    for place in range(0, len(state), 7):
        changed = f"{state[:place]}{'1' if state[place] != '1' else '2'}{state[place + 1 :]}"

        await refusal(await come_back(client, code="code-1", state=changed))

    assert platform.forms == []


async def test_state_of_another_user_is_refused(client: Client, platform: PlatformServer) -> None:
    answer = await come_back(client, SECOND_ADMIN, code="code-1", state=await begin(client, ADMIN))

    await refusal(answer)
    assert platform.forms == []


async def test_state_of_a_user_of_the_same_name_behind_a_proxy_is_refused(
    platform: PlatformServer, tmp_path: Path
) -> None:
    proxy = Proxy(user_header="X-User", allowed_peers=("127.0.0.1",), role="admin")
    access = Access(user=USERS.user, proxy=proxy)
    async with receiver_with(tmp_path, access, platform=platform.settings) as client:
        state = await begin(client, ADMIN)

        answer = await client.get(
            "/platform/installed",
            params={"code": "code-1", "state": state},
            headers={**HTML, "X-User": ADMIN.name},
        )
        await refusal(answer)

    assert platform.forms == []


async def test_state_for_another_redirect_url_is_refused(platform: PlatformServer, tmp_path: Path) -> None:
    async with receiver_with(tmp_path, platform=platform.settings) as client:
        state = await begin(client)
    moved = settings_of(platform.base_url, redirect_url="https://elsewhere.test/platform/installed")

    async with receiver_with(tmp_path, platform=moved) as client:
        await refusal(await come_back(client, code="code-1", state=state))

    assert platform.forms == []


async def test_redirect_without_a_session_goes_to_the_login_and_back(
    client: Client, platform: PlatformServer
) -> None:
    headers = {**HTML, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = await client.get(
        "/platform/installed", params={"code": "c", "state": "s"}, headers=headers, allow_redirects=False
    )

    assert answer.status == 303
    assert answer.headers["Location"] == f"{LOGIN}?next=%2Fplatform%2Finstalled%3Fcode%3Dc%26state%3Ds"
    assert platform.forms == []


@each_case("user", [VIEWER, OPERATOR])
async def test_only_an_admin_installs(client: Client, platform: PlatformServer, user: User) -> None:
    state = await begin(client)

    begun = await client.get("/platform/install", headers=session(user), allow_redirects=False)
    completed = await come_back(client, user, code="code-1", state=state)

    assert (begun.status, completed.status) == (403, 403)
    page = await shown(client, user=user)
    assert "/platform/install" not in page.links
    assert "Installing needs the role admin" in page.text
    assert platform.forms == []


async def test_head_does_not_use_the_code(client: Client, platform: PlatformServer) -> None:
    query = {"code": "code-1", "state": await begin(client)}

    head = await client.head("/platform/installed", params=query, headers=session(ADMIN))

    assert head.status == 405
    assert platform.forms == []
    assert (await come_back(client, **query)).status == 303


async def test_redirect_without_a_code_uses_nothing(client: Client) -> None:
    state = await begin(client)

    assert "The platform sent no code" in await refusal(await come_back(client, state=state))
    assert (await come_back(client, code="code-1", state=state)).status == 303


async def test_huge_code_is_refused(client: Client, platform: PlatformServer) -> None:
    answer = await come_back(client, code="c" * (CODE_CHARS_MAX + 1), state=await begin(client))

    assert f"The code has over {CODE_CHARS_MAX} characters" in await refusal(answer)
    assert platform.forms == []


@each_case(
    "link",
    [
        "javascript:alert(1)",
        "http://platform.test/",
        "//platform.test/",
        "https://platform.test@evil.test/",
        "https://",
        "https://platform.test/\r\nSet-Cookie: a=b",
        'https://platform.test/"><script>alert(1)</script>',
        "https://platform.test/ x",
        "https://plätform.test/",
        "https://platform.test/" + "x" * 2_048,
    ],
)
async def test_next_that_is_no_plain_https_address_is_not_shown(
    client: Client, platform: PlatformServer, link: str
) -> None:
    platform.answer["installation_id"] = f"icfg_{len(platform.forms)}"
    answer = await come_back(client, code=f"code-{len(platform.forms)}", state=await begin(client), next=link)

    page = await shown(client, answer.headers["Location"])
    assert link not in page.links
    assert "asks to continue" not in page.text
    assert set(answer.headers) & {"Set-Cookie"} == set()


async def test_next_is_shown_and_not_followed(client: Client) -> None:
    link = "https://platform.test/continue?installation=1#x"

    answer = await come_back(client, code="code-1", state=await begin(client), next=link)

    assert answer.headers["Location"].startswith("/platform?result=")
    assert link in (await shown(client, answer.headers["Location"])).links
    assert link not in (await shown(client)).links
