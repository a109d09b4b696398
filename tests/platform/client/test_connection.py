"""Calls of the platform: token, team, scopes, errors, retries, limits, and updates of groups."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from receiver.platform.client import errors, http_calls, retries
from receiver.platform.client.answers import ERROR_BYTES_MAX
from receiver.platform.client.connection import NEEDED, SCOPES, PlatformClient, missing_scopes
from receiver.platform.client.events import EventQuery, events
from receiver.platform.client.microfrontends import update_group
from tests.support.cases import each_case
from tests.support.platform_events import no_sleep
from tests.support.platform_server import Answer, PlatformServer, platform_server

TOKEN = "tok_Secret0123456789"
DEPLOYMENT = "dpl_1"
GROUP = {"updatedMicrofrontendsGroup": {"id": "mfe_1", "name": "Shop", "slug": "shop", "new": {"a": 1}}}


def client_of(server: PlatformServer, **options: Any) -> PlatformClient:  # noqa: ANN401 - any option
    client = PlatformClient(server.url, TOKEN, **{"team": "team_1", "timeout_s": 5.0, **options})
    client._sleep = no_sleep  # noqa: SLF001 - the delays are tested alone
    return client


async def read(server: PlatformServer, **options: Any) -> list[Any]:  # noqa: ANN401 - any option
    async with client_of(server, **options) as client:
        return list(await events(client, DEPLOYMENT, EventQuery()))


@each_case(
    ("options", "expected"),
    [
        ({"team": "team_1"}, {"teamId": "team_1"}),
        ({"team": "", "slug": "shop"}, {"slug": "shop"}),
        ({"team": "team_1", "slug": "shop"}, {"teamId": "team_1", "slug": "shop"}),
        ({"team": ""}, {}),
    ],
)
async def test_p02_each_call_names_the_team(options: dict[str, str], expected: dict[str, str]) -> None:
    async with platform_server(Answer([]), Answer(GROUP)) as server:
        await read(server, **options)
        assert server.received[0].query == expected
        if options["team"]:
            async with client_of(server, **options) as client:
                await update_group(client, "mfe_1", name="Shop")
            assert server.received[1].query == expected


async def test_p02_call_with_the_team_in_its_path_is_not_sent_without_its_id() -> None:
    async with platform_server(Answer([])) as server, client_of(server, team="", slug="shop") as client:
        with pytest.raises(errors.TeamMissing, match="id of the team in its path"):
            await update_group(client, "mfe_1", name="Shop")

    assert server.received == []


@each_case(
    ("granted", "missing"),
    [
        (["project:write", "domain:write"], []),
        (["write:project", "domain"], []),
        (["project:write"], ["domain:write"]),
        (["project:read", "domain:write"], ["project:write"]),
        ([], ["project:write", "domain:write"]),
    ],
)
def test_p33_every_needed_scope_must_be_granted_at_its_level(
    granted: Collection[str], missing: list[str]
) -> None:
    assert missing_scopes(["project:write", "domain:write"], granted) == missing


def test_p33_calls_need_scopes_that_exist() -> None:
    needed = {scope.partition(":")[0] for scopes in NEEDED.values() for scope in scopes}

    assert needed <= set(SCOPES)
    assert len(SCOPES) == 11


STATUSES: list[tuple[int, type[errors.PlatformError], str]] = [
    (400, errors.InvalidRequest, "correct it"),
    (401, errors.NotAuthorized, "platform.token_file or --token-file"),
    (403, errors.Forbidden, "scopes"),
    (404, errors.NotFound, "check the id"),
    (402, errors.Rejected, "plan or the payments"),
    (409, errors.Rejected, "the request is refused"),
    (410, errors.Rejected, "does not exist any more"),
    (429, errors.RateLimited, "try again later"),
    (500, errors.ServerFailed, "try again later"),
    (503, errors.ServerFailed, "try again later"),
    (302, errors.Redirected, "platform.base_url or --base-url"),
    (204, errors.WrongAnswer, "expected 200"),
]


@each_case(("status", "kind", "advice"), STATUSES)
@each_case(
    "body",
    [
        {"error": {"code": "some_code", "message": "The words of the server"}},
        {"code": "some_code", "message": "The words of the server"},
        {"error": "some_code", "error_description": "The words of the server"},
        b"<html>not JSON",
        b"",
    ],
)
async def test_p12_each_status_is_an_error_that_says_what_to_do(
    status: int,
    kind: type[errors.PlatformError],
    advice: str,
    body: Any,  # noqa: ANN401 - any JSON
) -> None:
    async with platform_server(Answer(body, status)) as server:
        with pytest.raises(errors.PlatformError) as caught:
            await read(server)

    assert type(caught.value) is kind
    assert caught.value.status == status
    assert advice in str(caught.value)
    assert ("message of the server" in str(caught.value)) == (status == 409 and isinstance(body, dict))
    if isinstance(body, dict) and status != 204:
        assert caught.value.code == "some_code"
        assert "(The words of the server)" in str(caught.value)


@each_case(
    "body",
    [
        {"error": {"code": "integration_configuration_disabled", "message": "x"}},
        {"code": "integration_configuration_disabled"},
        {"errors": [{"code": "integration_configuration_disabled"}]},
    ],
)
@each_case("status", [403, 402, 410])
async def test_p40_disabled_configuration_is_recognized_on_every_call(
    body: Any,  # noqa: ANN401 - any JSON
    status: int,
) -> None:
    async with platform_server(Answer(body, status)) as server, client_of(server) as client:
        with pytest.raises(errors.ConfigurationDisabled, match="transfer it to a member of the team"):
            await events(client, DEPLOYMENT, EventQuery())
        with pytest.raises(errors.ConfigurationDisabled):
            await update_group(client, "mfe_1", name="Shop")

    assert len(server.received) == 2


@each_case(
    ("failure", "requests"),
    [
        (Answer({}, 502), 3),
        (Answer({}, 503), 3),
        (Answer({}, 504), 3),
        (Answer({}, 429, {"Retry-After": "1"}), 3),
        (Answer({}, 429), 1),
        (Answer({}, 429, {"Retry-After": "3600"}), 1),
        (Answer({}, 500), 1),
        (Answer({}, 400), 1),
        (Answer({}, 401), 1),
    ],
)
async def test_only_temporary_failures_of_a_read_are_repeated(failure: Answer, requests: int) -> None:
    async with platform_server(failure, failure, Answer([])) as server:
        if requests == 1:
            with pytest.raises(errors.PlatformError):
                await read(server)
        else:
            assert await read(server) == []

    assert len(server.received) == requests


async def test_change_is_never_repeated() -> None:
    async with platform_server(Answer({}, 503)) as server, client_of(server) as client:
        with pytest.raises(errors.ServerFailed):
            await update_group(client, "mfe_1", name="Shop")

    assert len(server.received) == 1


async def test_p03_closed_port_is_reported_with_its_setting_and_without_the_token() -> None:
    async with platform_server(Answer([])) as server:
        pass
    with pytest.raises(errors.Unreachable, match=r"cannot be reached: .*platform.base_url") as caught:
        await read(server)

    assert TOKEN not in "".join(traceback.format_exception(caught.value))


async def test_slow_answer_is_an_error() -> None:
    slow = Answer(pieces=[b"["] * 50, pause_s=0.1)
    async with platform_server(slow) as server:
        with pytest.raises(errors.TimedOut, match=r"within 0\.5 s"):
            await read(server, timeout_s=0.5)

    assert len(server.received) == 1


async def test_p03_cut_answer_is_an_error_without_the_token() -> None:
    async with platform_server(Answer(pieces=[b'[{"type": "a"'], is_cut=True)) as server:
        with pytest.raises(errors.AnswerCut) as caught:
            await read(server)

    assert len(server.received) == retries.ATTEMPTS_MAX
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


async def test_redirect_is_not_followed_with_the_token() -> None:
    async with platform_server(Answer([])) as other:
        moved = Answer({}, 307, {"Location": f"{other.url}/v3/deployments/dpl_1/events"})
        async with platform_server(moved) as server:
            with pytest.raises(errors.Redirected):
                await read(server)

    assert other.received == []


async def test_too_large_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_calls, "ANSWER_BYTES_MAX", 1_000)
    async with platform_server(Answer(b" " * 1_001)) as server:
        with pytest.raises(errors.AnswerTooLarge, match="1000 bytes"):
            await read(server)


async def test_large_body_of_an_error_is_cut() -> None:
    body = b'{"error": {"code": "x"}}' + b" " * (4 * ERROR_BYTES_MAX)
    async with platform_server(Answer(body, 400), Answer([])) as server:
        with pytest.raises(errors.InvalidRequest):
            await read(server)
        assert await read(server) == []


@each_case("status", [400, 401, 403, 404, 500])
async def test_p03_token_is_in_no_error(status: int) -> None:
    echo = {"error": {"code": TOKEN, "message": "x" * 190 + f" {TOKEN} is wrong"}}
    async with platform_server(Answer(echo, status)) as server:
        client = client_of(server)
        with pytest.raises(errors.PlatformError) as caught:
            async with client:
                await events(client, DEPLOYMENT, EventQuery())
    texts = [repr(client), repr(caught.value), caught.value.code, *traceback.format_exception(caught.value)]
    assert not [text for text in texts if TOKEN[:8] in text]


@each_case(
    "base_url",
    [
        "",
        "example.com",
        "ftp://example.com",
        "https://user:Passw0rd@example.com",
        "https://example.com:99999",
        "https://example.com/?a=Passw0rd",
        "http://[::1",
    ],
)
def test_unusable_address_is_refused_without_quoting_it(base_url: str) -> None:
    with pytest.raises(errors.AddressMissing, match=r"platform\.base_url or --base-url") as caught:
        PlatformClient(base_url, TOKEN)

    assert "Passw0rd" not in str(caught.value)
    assert caught.value.exit_code == 2


@each_case("token", ["", "two words", "line\nbreak", "ü"])
def test_unusable_token_is_refused_without_quoting_it(token: str) -> None:
    with pytest.raises(errors.AddressMissing, match=r"platform\.token_file") as caught:
        PlatformClient("https://example.com", token)

    assert not token or token not in str(caught.value)


@each_case(
    ("deployment", "reason"),
    [
        *((name, "not valid") for name in ("", "..", ".", "a/b", "a?b=c", "a%2fb", "a" * 300)),
        ("https://shop.example.com/", r"expected shop\.example\.com, not https://"),
    ],
)
async def test_name_that_could_be_another_path_is_not_sent(deployment: str, reason: str) -> None:
    async with platform_server(Answer([])) as server, client_of(server) as client:
        with pytest.raises(errors.InvalidCall, match=reason):
            await events(client, deployment, EventQuery())

    assert server.received == []


async def test_path_of_the_address_is_kept() -> None:
    async with platform_server(Answer([])) as server:
        client = PlatformClient(f"{server.url}/api/", TOKEN, team="team 1&x=y")
        async with client:
            await events(client, "shop.example.com", EventQuery())

    assert server.received[0].path == "/api/v3/deployments/shop.example.com/events"
    assert server.received[0].query == {"teamId": "team 1&x=y"}


async def test_p01_each_call_has_the_bearer_token_and_not_that_of_netrc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with platform_server(Answer([])) as server:
        await read(server)

    assert server.received[0].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with platform_server(Answer([])) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        async with PlatformClient("http://platform.example:8080", TOKEN) as client:
            await events(client, DEPLOYMENT, EventQuery())
        assert proxy.received[0].headers["Host"] == "platform.example:8080"

        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with platform_server(Answer([])) as server:
            await read(server)
        assert len(server.received) == 1


async def test_proxy_of_another_kind_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    async with PlatformClient("http://platform.example", TOKEN) as client:
        with pytest.raises(errors.AddressMissing, match="http_proxy"):
            await events(client, DEPLOYMENT, EventQuery())


async def test_cookies_are_not_kept() -> None:
    answer = Answer([], headers={"Set-Cookie": "a=b"})
    async with platform_server(answer) as server, client_of(server) as client:
        await events(client, DEPLOYMENT, EventQuery())
        await events(client, DEPLOYMENT, EventQuery())

    assert "Cookie" not in server.received[1].headers


async def test_answer_that_is_not_http_is_an_error() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with PlatformClient(f"http://127.0.0.1:{port}", TOKEN) as client:
            with pytest.raises(errors.PlatformError, match="does not answer in HTTP"):
                await events(client, DEPLOYMENT, EventQuery())


async def test_call_outside_of_the_block_is_a_mistake_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await events(PlatformClient("https://example.com", TOKEN), DEPLOYMENT, EventQuery())


async def test_p10_update_of_a_group_sends_only_the_changed_fields() -> None:
    async with platform_server(Answer(GROUP)) as server, client_of(server) as client:
        group, fields = await update_group(client, "mfe_1", name="Shop", fallback_environment="SAME_ENV")
        await update_group(client, "mfe_1", name="Shop")
        with pytest.raises(errors.InvalidCall, match="nothing to change"):
            await update_group(client, "mfe_1")

    first, second = server.received
    assert (first.method, first.path) == ("PATCH", "/v1/teams/team_1/microfrontends/mfe_1")
    assert first.headers["Content-Type"] == "application/json"
    assert first.body == b'{"name":"Shop","fallbackEnvironment":"SAME_ENV"}'
    assert second.body == b'{"name":"Shop"}'
    assert (group.id, group.slug, group.fallback_environment) == ("mfe_1", "shop", None)
    assert fields["new"] == {"a": 1}


@each_case("body", [[], {}, {"updatedMicrofrontendsGroup": {}}, {"updatedMicrofrontendsGroup": 1}])
async def test_p11_answer_without_the_group_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, client_of(server) as client:
        with pytest.raises(errors.WrongShape):
            await update_group(client, "mfe_1", name="Shop")
