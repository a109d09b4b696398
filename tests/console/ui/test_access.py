"""Access to every route of the API and the pages: roles, proofs of a name, a trusted proxy, and the log."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from receiver.console.api.access import COOKIE
from receiver.console.api.route import ROUTES, Route
from receiver.console.api.sessions import new_key
from receiver.settings import Access, Proxy, User
from tests.console.ui.conftest import StartReceiver
from tests.support.access import ADMIN, OPERATOR, USERS, VIEWER, Client, Headers, bearer, log_in, session
from tests.support.api import api_over
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore

FOR_ADMINS = {
    *(("GET", "/platform/install"), ("GET", "/platform/installed")),
    *(("POST", "/api/v1/store/snapshot"), ("POST", "/api/v1/store/read")),
    *((method, "/api/v1/store/deletion") for method in ("GET", "HEAD", "POST")),
}
CHANGES_BY_GET = {("GET", "/platform/installed")}
"""The platform redirects a browser there; a signed state proves that the user began the installation."""
CHANGES = {
    ("POST", "/api/v1/dead/{id}/replay"),
    ("DELETE", "/api/v1/dead/{id}"),
    ("POST", "/api/v1/rollup/rebuild"),
    ("POST", "/api/v1/store/snapshot"),
    ("POST", "/api/v1/store/deletion"),
    ("POST", "/receiver/dead/{id}/replay"),
    ("POST", "/receiver/dead/{id}/drop"),
    ("POST", "/api/v1/platform/projects/{id}/keep"),
    ("POST", "/platform/projects/{id}/keep"),
    ("POST", "/api/v1/views"),
    ("DELETE", "/api/v1/views"),
    ("POST", "/views/save"),
    ("POST", "/views/delete"),
    ("POST", "/views/import"),
}
EXPLANATIONS = ("/api/v1/traces/{id}/explain", "/trace/{id}/explain")
FOR_OPERATORS = CHANGES | {
    (method, path) for method in ("GET", "HEAD", "POST") for path in ("/api/v1/sql", "/sql", *EXPLANATIONS)
}
PUBLIC = {
    ("GET", "/login"),
    ("HEAD", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/static/{digest}/{name}"),
    ("HEAD", "/static/{digest}/{name}"),
}


READS_BY_POST = {
    ("POST", path) for path in ("/api/v1/sql", "/api/v1/store/read", "/sql", "/mcp", *EXPLANATIONS)
}
SESSIONS = {("POST", "/login"), ("POST", "/logout")}
"""Routes with a log line of their own."""


def routes_of(client: Client) -> list[tuple[str, str, Route]]:
    """Return method, path and entry of every route."""
    application = client.app
    assert application is not None
    return [
        (served.method, served.resource.canonical, application[ROUTES][served])
        for served in application.router.routes()
        if served.resource is not None
    ]


def required(method: str, path: str) -> str:
    if (method, path) in PUBLIC:
        return "public"
    if (method, path) in FOR_ADMINS:
        return "admin"
    return "operator" if (method, path) in FOR_OPERATORS else "viewer"


async def test_every_route_has_an_entry_with_the_role_that_it_requires(start: StartReceiver) -> None:
    routes = routes_of(await start())

    assert {(method, path) for method, path, _ in routes} >= FOR_OPERATORS | PUBLIC
    for method, path, route in routes:
        assert route.role == required(method, path), f"{method} {path}"


async def test_every_route_that_changes_something_declares_it(start: StartReceiver) -> None:
    routes = routes_of(await start())

    declared_changes = {(method, path) for method, path, route in routes if route.changes}
    by_other_methods = {(method, path) for method, path, _ in routes if method not in {"GET", "HEAD"}}
    assert declared_changes - CHANGES_BY_GET == CHANGES == by_other_methods - READS_BY_POST - SESSIONS


@each_case("path", ["/api/v1/sql", "/sql", "/mcp", "/api/v1/nothing", "/api/v1/spans"])
async def test_request_that_changes_nothing_is_not_logged_as_a_change(
    start: StartReceiver, path: str
) -> None:
    client = await start()
    with capture_logs() as logged:
        await client.post(path, headers=bearer(OPERATOR), json={"query": "SELECT 1"})

    assert "change requested" not in [line["event"] for line in logged]


@each_case("proof", [bearer, session])
async def test_each_role_may_use_its_routes_and_no_other(
    start: StartReceiver, proof: Callable[[User], Headers]
) -> None:
    client = await start()
    may_use = {
        "admin": {"admin"},
        "viewer": {"viewer", "operator", "admin"},
        "operator": {"operator", "admin"},
    }

    for method, path, _ in routes_of(client):
        needed = required(method, path)
        url = re.sub(r"\{\w+\}", "0" * 31 + "1", path)
        anonymous = await client.request(method, url)
        assert (anonymous.status == 401) == (needed != "public"), f"{method} {path}"
        for user in USERS.user if needed != "public" else ():
            answer = await client.request(method, url, headers=proof(user))
            is_allowed = answer.status not in {401, 403}
            assert is_allowed == (user.role in may_use[needed]), f"{user.role}: {method} {path}"


async def test_route_without_an_entry_requires_an_administrator() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    with api_over(MemoryStore(), access=lambda: USERS) as api:
        application = api.application()
        application.router.add_get("/unlisted", answer)
        async with TestClient(TestServer(application)) as client:
            answers = [(await client.get("/unlisted", headers=bearer(user))).status for user in USERS.user]

    assert answers == [403, 403, 200]


async def test_refusal_names_the_role_of_the_caller_and_the_required_one(start: StartReceiver) -> None:
    answer = await (await start()).delete("/api/v1/dead/1", headers=bearer(VIEWER))

    problem = await answer.json()
    assert problem["detail"] == "the role 'viewer' does not allow this"
    assert problem["hint"] == "expected the role 'operator'"


async def test_unknown_path_is_answered_404_to_every_known_caller(start: StartReceiver) -> None:
    client = await start()

    assert (await client.get("/api/v1/nothing", headers=bearer(VIEWER))).status == 404
    assert (await client.post("/api/v1/spans", headers=bearer(VIEWER))).status == 405
    assert (await client.get("/api/v1/nothing")).status == 401


@each_case(
    "headers",
    [
        pytest.param(session(VIEWER, lifetime_s=0), id="expired"),
        pytest.param(session(VIEWER, key=new_key()), id="other key"),
        pytest.param(session(User(name="vera", token="x" * 16)), id="other token"),
        pytest.param(session(User(name="eve", token=VIEWER.token)), id="other name"),
        pytest.param({"Cookie": f"{COOKIE}=admin"}, id="forged"),
        pytest.param({"Cookie": f"{COOKIE}=9999999999.{'0' * 64}"}, id="without a signature"),
        pytest.param({"Authorization": f"Bearer {VIEWER.token}x"}, id="wrong token"),
        pytest.param({"Authorization": "Bearer "}, id="empty token"),
        pytest.param({"Authorization": f"Basic {VIEWER.token}"}, id="other scheme"),
        pytest.param({**session(VIEWER), "Authorization": "Bearer wrong"}, id="session and wrong token"),
        pytest.param({"x-user": "vera"}, id="header of a proxy that is not configured"),
        pytest.param([*bearer(VIEWER).items()] * 2, id="two tokens"),
        pytest.param([*bearer(VIEWER).items(), ("authorization", "Basic eDp5")], id="two schemes"),
        pytest.param([*session(VIEWER).items()] * 2, id="two headers of cookies"),
        pytest.param({"Cookie": "; ".join([session(VIEWER)["Cookie"]] * 2)}, id="two sessions in a header"),
        pytest.param(
            [*session(VIEWER).items(), ("Authorization", "Basic a"), ("Authorization", "Basic b")],
            id="session and two others",
        ),
    ],
)
async def test_caller_without_one_valid_proof_is_unknown(
    start: StartReceiver, headers: Headers | list[tuple[str, str]]
) -> None:
    answer = await (await start()).get("/api/v1/health", headers=headers)

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_scheme_is_accepted_in_any_case_and_the_api_token_is_of_an_administrator(
    start: StartReceiver,
) -> None:
    client = await start(USERS, token="s")

    for scheme, token in (("Bearer", "s"), ("bearer", ADMIN.token), ("BEARER", ADMIN.token)):
        answer = await client.delete("/api/v1/dead/1", headers={"Authorization": f"{scheme} {token}"})
        assert answer.status not in {401, 403}, scheme


async def test_api_without_configured_credentials_serves_every_caller(start: StartReceiver) -> None:
    client = await start(Access())

    assert (await client.get("/api/v1/health")).status == 200
    answer = await client.get("/login?next=/search", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (303, "/search")


async def test_api_answers_401_to_a_browser_and_refuses_a_form_of_this_origin(start: StartReceiver) -> None:
    client = await start()

    unknown = await client.get("/api/v1/health", headers={"Accept": "text/html"})
    form = await client.post("/api/v1/dead/1/replay", data={"a": "b"}, headers=session(ADMIN))

    assert (unknown.status, form.status) == (401, 415)


PROXY = Access(proxy=Proxy(user_header="X-User", allowed_peers=("127.0.0.0/8", "::1"), role="operator"))


async def test_proxy_names_the_user(start: StartReceiver) -> None:
    client = await start(PROXY)

    assert (await client.get("/api/v1/health", headers={"X-User": "Ann Example"})).status == 200
    with capture_logs() as logged:
        await client.delete("/api/v1/dead/1", headers={"x-user": "Ann Example"})
    assert [(line["name"], line["role"]) for line in logged if line["event"] == "change requested"] == [
        ("Ann Example", "operator")
    ]


@each_case(
    "headers",
    [
        [],
        [("X-User", "")],
        [("X-User", "ann"), ("X-User", "admin")],
        [("X-User", "a" * 257)],
        [("X-User", "a\tb")],
    ],
    ids=["missing", "empty", "twice", "long", "control character"],
)
async def test_proxy_header_without_exactly_one_name_authenticates_no_user(
    start: StartReceiver, headers: list[tuple[str, str]]
) -> None:
    client = await start(PROXY)

    assert (await client.get("/api/v1/health", headers=headers)).status == 401


async def test_header_of_a_peer_that_is_not_the_proxy_is_ignored(start: StartReceiver) -> None:
    access = Access(user=(VIEWER,), proxy=Proxy(user_header="X-User", allowed_peers=("10.0.0.0/8",)))
    client = await start(access)

    assert (await client.get("/api/v1/health", headers={"X-User": "ann"})).status == 401
    assert (await client.get("/api/v1/health", headers={"X-User": "ann", **bearer(VIEWER)})).status == 200


async def test_log_has_each_change_and_each_login_without_secrets(start: StartReceiver) -> None:
    client = await start()
    with capture_logs() as logged:
        await client.post("/api/v1/rollup/rebuild", json={})
        await log_in(client, OPERATOR.token)
        await log_in(client, "wrong-token")
        await client.post("/api/v1/rollup/rebuild", headers=bearer(OPERATOR), json={})
        await client.delete("/api/v1/dead/1", headers=bearer(VIEWER))
        await client.post("/logout", headers=session(OPERATOR), allow_redirects=False)

    events = [(line["event"], line.get("name"), line.get("role"), line.get("status")) for line in logged]
    assert events == [
        ("user logged in", "otto", "operator", None),
        ("login refused", None, None, None),
        ("change requested", "otto", "operator", 400),
        ("change requested", "vera", "viewer", 403),
        ("user logged out", "otto", "operator", None),
    ]
    assert {line["peer"] for line in logged} == {"127.0.0.1"}
    assert not any(text in str(logged) for text in (OPERATOR.token, VIEWER.token, "wrong-token", COOKIE))
