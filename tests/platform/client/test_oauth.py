"""Exchange of a code for a token: sent once, and never shown."""

from __future__ import annotations

import traceback
from typing import Any
from urllib.parse import parse_qs

import pytest

from receiver.platform.client import errors
from receiver.platform.client.oauth import Token, exchange
from tests.support.cases import each_case
from tests.support.platform_server import Answer, PlatformServer, platform_server

ANSWER = {
    "access_token": "tok_Secret0123",
    "token_type": "Bearer",
    "installation_id": "icfg_1",
    "team_id": "team_1",
    "user_id": "user_1",
}


async def exchanged(server: PlatformServer) -> Token:
    return await exchange(
        server.url, "oac_1", "sec_Client0123", "code_0123456789", "https://a.example/?a=b&c", timeout_s=2.0
    )


async def test_p32_exchange_sends_a_form_and_keeps_all_fields() -> None:
    async with platform_server(Answer(ANSWER)) as server:
        token = await exchanged(server)

    received = server.received[0]
    assert (received.method, received.path) == ("POST", "/v2/oauth/access_token")
    assert received.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert "Authorization" not in received.headers
    assert parse_qs(received.body.decode(), strict_parsing=True) == {
        "client_id": ["oac_1"],
        "client_secret": ["sec_Client0123"],
        "code": ["code_0123456789"],
        "redirect_uri": ["https://a.example/?a=b&c"],
    }
    assert (token.access_token, token.team_id) == ("tok_Secret0123", "team_1")
    assert token.fields == {"token_type": "Bearer", "installation_id": "icfg_1", "user_id": "user_1"}
    assert "tok_Secret0123" not in f"{token!r} {token}"


@each_case("answer", [{**ANSWER, "team_id": None}, {"access_token": "tok_Secret0123"}])
async def test_p32_installation_on_an_account_has_no_team(answer: dict[str, Any]) -> None:
    async with platform_server(Answer(answer)) as server:
        assert (await exchanged(server)).team_id is None


@each_case(
    ("failure", "reason"),
    [
        (Answer({}, 503), "the code may be used up"),
        (Answer({}, 429, {"Retry-After": "0"}), "the code may be used up"),
        (Answer({}, 500), "the code may be used up"),
        (Answer({}, 502), "the code may be used up"),
        (Answer(pieces=[b'{"access'], is_cut=True), "the code may be used up"),
        (Answer({"error": "invalid_grant"}, 400), "30 minutes and for one exchange"),
    ],
)
async def test_p31_code_is_sent_once_and_the_error_says_whether_it_is_used_up(
    failure: Answer, reason: str
) -> None:
    async with platform_server(failure) as server:
        with pytest.raises(errors.PlatformError, match=reason) as caught:
            await exchanged(server)

    assert len(server.received) == 1
    if failure.status == 400:
        assert isinstance(caught.value, errors.CodeRejected)
        assert (caught.value.status, caught.value.code) == (400, "invalid_grant")


@each_case("status", [400, 401, 500])
async def test_secrets_are_in_no_error_of_the_exchange(status: int) -> None:
    echo = {"error": "code_0123456789", "error_description": "sec_Client0123 with code_0123456789 is wrong"}
    async with platform_server(Answer(echo, status)) as server:
        with pytest.raises(errors.PlatformError) as caught:
            await exchanged(server)

    shown = caught.value.code + "".join(traceback.format_exception(caught.value))
    assert "sec_Client0123" not in shown
    assert "code_0123456789" not in shown


@each_case("body", [{}, [], b"x", {"access_token": ""}, {"access_token": 1, "team_id": []}])
async def test_answer_without_a_token_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server:
        with pytest.raises(errors.WrongAnswer):
            await exchanged(server)
