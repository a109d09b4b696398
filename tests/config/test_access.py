"""Settings of users and of a trusted proxy."""

from __future__ import annotations

import pytest

from receiver.config.access import USERS_MAX
from tests.support.cases import each_case
from tests.support.config_files import ConfigDirectory

TOKEN = "0123456789abcdef"


def user(name: str, token: str = TOKEN, more: str = "") -> str:
    return f"[[api.user]]\nname = '{name}'\ntoken = '{token}'\n{more}\n"


def proxy(header: str, peer: str) -> str:
    return f"api.proxy = {{user_header = '{header}', allowed_peers = ['{peer}']}}"


def test_users_and_proxy_are_read(config_dir: ConfigDirectory) -> None:
    config_dir.file("token", f"{TOKEN}\n")
    toml = (
        "[api]\nsession_s = 3600\n"
        "[api.proxy]\nuser_header = 'x-user'\nallowed_peers = ['127.0.0.1', '10.0.0.0/8', 'fd00::/8']\n"
        "[[api.user]]\nname = 'ann@example.org'\ntoken_file = 'token'\nrole = 'operator'\n"
    )

    access = config_dir.load(toml).settings.api

    assert access.session_s == 3600
    assert [(read.name, read.token, read.role) for read in access.user] == [
        ("ann@example.org", TOKEN, "operator")
    ]
    assert access.proxy.allowed_peers == ("127.0.0.1", "10.0.0.0/8", "fd00::/8")
    assert access.proxy.role == "viewer"
    assert access.user[0].projects == access.proxy.projects == ()


def test_projects_of_users_and_of_the_proxy_are_read(config_dir: ConfigDirectory) -> None:
    toml = user("a", more="projects = ['prj_1', 'été 2']") + (
        "[api.proxy]\nuser_header = 'x-user'\nallowed_peers = ['::1']\nprojects = ['prj_3']\n"
    )

    access = config_dir.load(toml).settings.api

    assert access.user[0].projects == ("prj_1", "été 2")
    assert access.proxy.projects == ("prj_3",)


def test_users_may_come_from_the_environment(config_dir: ConfigDirectory) -> None:
    environ = {"TRACE_DRAIN_API__USER__0__NAME": "ann", "TRACE_DRAIN_API__USER__0__TOKEN": TOKEN}

    (read,) = config_dir.load("", environ).settings.api.user

    assert (read.name, read.role) == ("ann", "viewer")


@each_case(
    ("toml", "expected"),
    [
        pytest.param("[[api.user]]\nname = 'a'", "'api.user[0]' has no token", id="no token"),
        pytest.param(f"[[api.user]]\ntoken = '{TOKEN}'", "'api.user[0]' has no name", id="no name"),
        pytest.param(user("a", "short"), "expected 16 to 65536", id="short token"),
        pytest.param(user("a", TOKEN + "é"), "api.user[0] token contains characters", id="not ASCII"),
        pytest.param(user("(local)"), "name is '(local)'; expected letters", id="name"),
        pytest.param(user("a") + user("a", "x" * 16), "'a' is configured more than once", id="same name"),
        pytest.param(user("a") + user("b"), "api.user[1] has the token of another user", id="same token"),
        pytest.param(
            f"api_token = '{TOKEN}'\n{user('a')}", "api.user[0] has the token of another", id="api_token"
        ),
        pytest.param(user("a", more="role = 'root'"), "expected one of 'viewer'", id="role"),
        pytest.param(
            "".join(user(f"u{number}", f"{number:016}") for number in range(USERS_MAX + 1)),
            f"api.user has {USERS_MAX + 1} entries; expected at most {USERS_MAX}",
            id="too many users",
        ),
        pytest.param("api.proxy.user_header = 'x-user'", "only one of user_header", id="any peer"),
        pytest.param("api.proxy.allowed_peers = ['::1']", "only one of user_header", id="no header"),
        pytest.param(
            "api.proxy = {user_header = 'x user', allowed_peers = ['::1']}",
            "name of an HTTP header",
            id="space",
        ),
        pytest.param(user("a", more="projects = ['']"), "expected 1 to 256", id="no project"),
        pytest.param(user("a", more='projects = ["a\\n"]'), "contains a control character", id="line break"),
        pytest.param(user("a", more=f"projects = {['p'] * 65}"), "expected 0 to 64", id="many projects"),
        pytest.param(proxy("Cookie", "::1"), "which clients send", id="cookie"),
        pytest.param(
            "[api]\nclickhouse_listen = '0.0.0.0:8123'",
            "without a token; expected api.clickhouse_token_file",
            id="public ClickHouse endpoint",
        ),
        pytest.param("[api]\nclickhouse_listen = 'nowhere'", "api.clickhouse_listen is", id="address"),
        pytest.param(
            "[api]\nclickhouse_listen = '127.0.0.1:8318'",
            "are both '127.0.0.1:8318'; expected different ports",
            id="port of the API",
        ),
        pytest.param(
            "store.url = 'http://default@127.0.0.1:8123/otel'\n[api]\nclickhouse_listen = '127.0.0.1:0'",
            "clickhouse_listen serves the embedded store; a server has its own HTTP interface",
            id="ClickHouse endpoint of a server",
        ),
        pytest.param(
            "api.proxy = {user_header = 'x-user', allowed_peers = ['proxy']}",
            "has 'proxy'",
            id="name as peer",
        ),
        pytest.param(
            "api.proxy = {user_header = 'x-user', allowed_peers = ['10.0.0.1/8']}",
            "'10.0.0.1/8'",
            id="host bits",
        ),
    ],
)
def test_wrong_access_settings_are_refused(config_dir: ConfigDirectory, toml: str, expected: str) -> None:
    message = config_dir.problem(toml)

    assert expected in message
    assert TOKEN not in message


@pytest.mark.parametrize("toml", [user("a"), proxy("x-user", "10.0.0.1")])
def test_user_or_proxy_suffices_for_an_api_beyond_loopback(config_dir: ConfigDirectory, toml: str) -> None:
    assert config_dir.load(f"api_listen = '0.0.0.0:8318'\n{toml}").settings.api_listen == "0.0.0.0:8318"


def test_token_of_the_clickhouse_endpoint_allows_other_machines(config_dir: ConfigDirectory) -> None:
    config_dir.file("token", f"{TOKEN}\n")
    toml = "[api]\nclickhouse_listen = '0.0.0.0:8123'\nclickhouse_token_file = 'token'"

    access = config_dir.load(toml).settings.api

    assert access.clickhouse_token == TOKEN
    assert TOKEN not in str(config_dir.load("[api]\nclickhouse_listen = ''"))
