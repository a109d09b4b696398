"""Tests of refusals in the log, which name the credential or path; the answer to the client does not."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.errors import NoSuchPath
from receiver.intake.routes import PATH_CHARS_LOGGED_MAX, PATHS_LOGGED_MAX, Routes
from receiver.settings import Drain, Limits
from tests.support.intake import SPAN_BODY, on_uvloop, running

TOKEN = Drain(name="web", tokens=("canary-token",))
KEY = Drain(name="web", header="X-Api-Key", tokens=("canary-token",))
SIGNED = Drain(name="web", signature_header="x-sig", signature_secrets=("canary-secret",))
BOTH = Drain(
    name="web", tokens=("canary-token",), signature_header="x-sig", signature_secrets=("canary-secret",)
)
SHA256 = hmac.new(b"canary-secret", SPAN_BODY, "sha256").hexdigest()

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def log() -> Iterator[Lines]:
    with capture_logs() as lines:
        yield lines


BEARER_EXPECTED = "expected 'Bearer TOKEN' in the header 'authorization'"
NO_SIGNATURE = "signature is missing; expected it in the header 'x-sig'"
IN_HEADER = "signature in the header 'x-sig'"
SHA1_EXPECTED = "expected 40 hex digits of HMAC-sha1"


@pytest.mark.parametrize(
    ("drain", "headers", "status", "error"),
    [
        pytest.param(TOKEN, {}, 401, f"token is missing; {BEARER_EXPECTED}", id="no token"),
        pytest.param(
            TOKEN,
            {"authorization": "canary-token"},
            401,
            f"token has no scheme 'Bearer'; {BEARER_EXPECTED}",
            id="no scheme",
        ),
        pytest.param(
            TOKEN,
            {"authorization": "Bearer"},
            401,
            f"token is missing after its scheme; {BEARER_EXPECTED}",
            id="scheme without token",
        ),
        pytest.param(
            TOKEN,
            {"authorization": "Bearer canary-guess"},
            401,
            f"token is unknown; {BEARER_EXPECTED}",
            id="wrong token",
        ),
        pytest.param(
            KEY,
            {"x_api_key": "Bearer canary-token"},
            401,
            "token has a scheme; expected the bare token in the header 'X-Api-Key'",
            id="scheme in another header",
        ),
        pytest.param(SIGNED, {}, 401, NO_SIGNATURE, id="no signature"),
        pytest.param(
            BOTH,
            {},
            401,
            f"token is missing; {BEARER_EXPECTED} and {NO_SIGNATURE}",
            id="no token, no signature",
        ),
        pytest.param(
            SIGNED,
            {"x_sig": "0" * 40},
            403,
            f"{IN_HEADER} does not match the body with any of the drain's secrets",
            id="wrong signature",
        ),
        pytest.param(
            SIGNED,
            {"x_sig": "canary"},
            403,
            f"{IN_HEADER} is not an HMAC-sha1; {SHA1_EXPECTED}",
            id="not a signature",
        ),
        pytest.param(
            SIGNED,
            {"x_sig": f"sha256={SHA256}"},
            403,
            f"{IN_HEADER} is an HMAC-sha256; {SHA1_EXPECTED}",
            id="another algorithm",
        ),
    ],
)
@on_uvloop
async def test_wrong_credential_is_named_in_the_log_but_not_in_the_answer(
    log: Lines, drain: Drain, headers: dict[str, str], status: int, error: str
) -> None:
    async with running(drain) as intake:
        answer = await intake.post(SPAN_BODY, content_type="application/json", **headers)

    (line,) = log
    assert (answer.status, line["status"]) == (status, status)
    assert (line["event"], line["drain"], line["error"]) == ("request refused", "web", error)
    assert "header" not in json.loads(answer.body)["message"]
    assert "canary" not in str(log)


@on_uvloop
async def test_log_names_each_drain_of_a_shared_path(log: Lines) -> None:
    drains = [Drain(name=f"d{number}", tokens=(f"t{number}",)) for number in range(6)]
    async with running(*drains) as intake:
        await intake.post()

    error = log[0]["error"]
    assert "drain 'd0': token is missing" in error
    assert error.endswith("; 2 more drains")


@on_uvloop
async def test_log_names_the_drain_of_a_token_used_at_another_path(log: Lines) -> None:
    async with running(TOKEN, Drain(name="b", path="/b", tokens=("b",))) as intake:
        answer = await intake.post(authorization="Bearer b")

    assert answer.status == 403
    assert log[0]["error"].startswith("token is known for drain 'b' at another path; here: token is unknown")


@on_uvloop
async def test_log_names_unknown_paths_without_their_query(log: Lines) -> None:
    async with running(TOKEN, Drain(name="b", path="/b")) as intake:
        await intake.post(path="/first?token=canary")
        await intake.post(path="http://user:canary@h/v1/traces/v1/traces?token=canary")

    assert [line["path"] for line in log] == ["/first", "/v1/traces/v1/traces"]
    assert log[0]["configured"] == "'/v1/traces', '/b'"
    assert "drain" not in log[0]
    assert log[1]["error"].startswith("the sender appended '/v1/traces'")
    assert "canary" not in str(log)


@on_uvloop
async def test_long_path_is_truncated_in_the_log(log: Lines) -> None:
    async with running() as intake:
        await intake.post(path="/" + "x" * 5_000)

    assert len(log[0]["path"]) == PATH_CHARS_LOGGED_MAX + 1


@on_uvloop
async def test_number_of_configured_paths_in_the_log_is_limited(log: Lines) -> None:
    drains = [Drain(name=f"d{n}", path=f"/{n}") for n in range(PATHS_LOGGED_MAX + 2)]
    async with running(*drains) as intake:
        await intake.post(path="/elsewhere")

    assert log[0]["configured"] == "'/0', '/1', '/2', '/3' and 2 more"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/in/8f3a", "did you mean '/in/8f3ab'?"),
        ("/in/8f3ab1", "did you mean '/in/8f3ab'?"),
        ("/in/8f3ax", "did you mean '/in/8f3ab'?"),
        ("/in/8f3", "expected the path of a configured drain"),
        ("/c", "expected the path of a configured drain"),
    ],
)
def test_path_of_a_drain_is_suggested_only_if_one_character_differs(path: str, hint: str) -> None:
    routes = Routes(
        [Drain(name="b", path="/in/8f3ab"), Drain(name="c", path="/b")], Limits(), post_root=False
    )

    with pytest.raises(NoSuchPath) as refusal:
        routes.find(path)

    assert str(refusal.value) == f"no drain at this path; {hint}"


def test_missing_path_gets_a_hint_if_the_root_is_not_an_alias() -> None:
    def hint(*drains: Drain) -> str:
        with pytest.raises(NoSuchPath) as refused:
            Routes(drains, Limits(), post_root=False).find("/")
        return str(refused.value)

    assert hint(TOKEN) == "the URL has no path; expected '/v1/traces'"
    assert hint(Drain(name="b", path="/b")) == "the URL has no path; expected the path of a configured drain"


@on_uvloop
async def test_different_refusals_of_one_drain_are_all_logged(log: Lines) -> None:
    async with running(TOKEN) as intake:
        await intake.post()
        await intake.post()
        await intake.post(authorization="Bearer x")

    assert [line["error"].partition(";")[0] for line in log] == ["token is missing", "token is unknown"]


@on_uvloop
async def test_http_error_is_logged(log: Lines) -> None:
    async with running() as intake:
        await intake.post(expect="more")

    assert log[0]["event"] == "request refused"
    assert (log[0]["status"], log[0]["error"]) == (
        417,
        "expectation is not supported; expected 100-continue or none",
    )
