"""The loader: three sources, one precedence, every problem told at once, no secret in any message."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from receiver.config.keys import INDEX, env_name, env_patterns, spellings
from receiver.config.load import DEFAULT_DRAIN
from receiver.config.show import as_json, as_toml
from receiver.settings import GIB, Settings
from tests.support.config_files import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_nothing_said_is_the_defaults_and_one_open_drain(desk: Desk) -> None:
    loaded = desk.load()

    assert loaded.settings == Settings(drain=(DEFAULT_DRAIN,))
    assert loaded.origins == {}


def test_flags_win_over_the_environment_that_over_the_file_that_over_the_default(desk: Desk) -> None:
    toml = 'listen = "127.0.0.1:1"\nintakes = 2\nlog_format = "json"'
    environ = {"TRACE_DRAIN_LISTEN": "127.0.0.1:2", "TRACE_DRAIN_INTAKES": "3"}
    flags: dict[str, tuple[str, object]] = {"--listen": ("listen", "127.0.0.1:3")}

    loaded = desk.load(toml, environ, flags)

    said = loaded.settings
    assert (said.listen, said.intakes, said.log_format) == ("127.0.0.1:3", 3, "json")
    assert said.admin_listen == Settings().admin_listen
    assert loaded.origins == {
        "listen": "flag --listen",
        "intakes": "environment TRACE_DRAIN_INTAKES",
        "log_format": f"file {desk.directory / 'trace-drain.toml'}",
    }


def test_the_issues_example_loads(desk: Desk) -> None:
    for name in ("token", "secret", "secret.old"):
        desk.file(name, f"{name}-content\n")
    toml = """
        data_dir = "data"
        listen = "127.0.0.1:4318"
        [store]
        url = "https://user@host:8443/otel"
        retention_days = 30
        [journal]
        bytes_max = "8GiB"
        segment_rows_max = 200_000
        [sampling]
        mode = "equalizing"
        rate = 1.0
        [[sampling.rule]]
        project = "prj_1"
        rate = 0.1
        [[drain]]
        name = "production"
        token_file = "token"
        signature_header = "x-platform-signature"
        signature_secret_files = ["secret", "secret.old"]
        acknowledge = "journal"
    """

    said = desk.load(toml).settings

    (drain,) = said.drain
    assert drain.tokens == ("token-content",)
    assert drain.signature_secrets == ("secret-content", "secret.old-content")
    assert said.journal.bytes_max == 8 * GIB
    assert said.sampling.rule[0].rate == 0.1
    assert said.data_dir == str(desk.directory / "data")


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        pytest.param("STORE__URL", "http://h:1/db", "store.url", "http://h:1/db", id="nested"),
        pytest.param("STORE_URL", "http://h:1/db", "store.url", "http://h:1/db", id="single underscore"),
        pytest.param("JOURNAL__BYTES_MAX", "1GiB", "journal.bytes_max", GIB, id="size"),
        pytest.param("LIMITS__BODY_GRACE_S", "2.5", "limits.body_grace_s", 2.5, id="float"),
        pytest.param("POST_ROOT", "false", "post_root", False, id="bool"),
        pytest.param(
            "RESOLVE__PROJECT", "span:a, resource:b", "resolve.project", ("span:a", "resource:b"), id="list"
        ),
        pytest.param("RESOLVE__PROJECT", '["span:a,b"]', "resolve.project", ("span:a,b",), id="list as JSON"),
    ],
)
def test_the_environment_says_every_type(desk: Desk, name: str, text: str, path: str, value: object) -> None:
    said: object = desk.load(environ={f"TRACE_DRAIN_{name}": text}).settings
    for part in path.split("."):
        said = getattr(said, part)

    assert said == value


def test_drains_can_come_from_the_environment_alone(desk: Desk) -> None:
    environ = {
        "TRACE_DRAIN_DRAIN__0__NAME": "a",
        "TRACE_DRAIN_DRAIN__0__TOKEN_FILE": desk.file("t", "one\n"),
        "TRACE_DRAIN_DRAIN_1_NAME": "b",
        "TRACE_DRAIN_DRAIN__1__TOKENS": "two,three",
    }

    first, second = desk.load(environ=environ).settings.drain

    assert (first.name, first.tokens) == ("a", ("one",))
    assert (second.name, second.tokens) == ("b", ("two", "three"))


def test_a_secret_said_in_the_environment_replaces_the_files(desk: Desk) -> None:
    toml = f'[store]\nurl = "http://h"\npassword_file = "{desk.file("p", "old")}"'

    said = desk.load(toml, {"TRACE_DRAIN_STORE__PASSWORD": "new"}).settings

    assert said.store.password == "new"


def test_what_kubernetes_says_about_a_service_of_our_name_is_not_ours(desk: Desk) -> None:
    environ = {
        "TRACE_DRAIN_SERVICE_HOST": "10.0.0.1",
        "TRACE_DRAIN_SERVICE_PORT_OTLP": "4318",
        "TRACE_DRAIN_PORT": "tcp://10.0.0.1:4318",
        "TRACE_DRAIN_PORT_4318_TCP_ADDR": "10.0.0.1",
    }

    assert desk.load(environ=environ).origins == {}


def test_no_two_keys_have_one_name_in_the_environment() -> None:
    samples = {path: env_name(path).replace(INDEX, "0").replace("__", "_") for path in spellings()}

    for pattern, said in env_patterns():
        matching = [
            path for path, name in samples.items() if pattern.fullmatch(name.removeprefix("TRACE_DRAIN_"))
        ]
        assert matching == [said.path]


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param("", ["without TLS", "drain 'default' takes anything"], id="open"),
        pytest.param(
            "behind_proxy = true", ["drain 'default' takes anything"], id="proxy without credentials"
        ),
        pytest.param("[[drain]]\nname='a'\ntokens=['s']", ["without TLS"], id="token without TLS"),
        pytest.param("tls.self_signed = true", ["drain 'default' takes anything"], id="TLS without token"),
        pytest.param("insecure = true", [], id="insecure on purpose"),
        pytest.param("behind_proxy = true\n[[drain]]\nname='a'\ntokens=['s']", [], id="proxy and token"),
        pytest.param("tls.self_signed = true\n[[drain]]\nname='a'\ntokens=['s']", [], id="TLS and token"),
    ],
)
def test_listening_beyond_loopback_takes_credentials_and_tls(
    desk: Desk, toml: str, expected: list[str]
) -> None:
    environ = {"TRACE_DRAIN_LISTEN": "0.0.0.0:4318"}

    told = desk.problem(toml, **environ) if expected else str(desk.load(toml, environ))

    for part in ("without TLS", "drain 'default' takes anything"):
        assert (part in told) == (part in expected)


def test_the_api_beyond_loopback_takes_a_token(desk: Desk) -> None:
    toml = "api_listen = '0.0.0.0:8318'"

    assert "expected api_token_file" in desk.problem(toml)
    assert desk.load(toml, {"TRACE_DRAIN_API_TOKEN": "s"}).settings.api_token == "s"


def test_drains_may_share_a_path_when_their_credentials_differ(desk: Desk) -> None:
    own = "[[drain]]\nname='a'\ntokens=['s']\n[[drain]]\nname='b'\ntokens=['t']"
    same = "[[drain]]\nname='a'\ntokens=['s']\n[[drain]]\nname='b'\npath='/v1/traces/'\ntokens=['t', 's']"

    assert len(desk.load(own).settings.drain) == 2
    assert "and look the same" in desk.problem(same)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param("\n", "which is empty; expected a secret", id="empty"),
        pytest.param(" \t\n", "which holds nothing but white space; expected a secret", id="white space"),
        pytest.param("x" * 70_000, "which is over 64 KiB", id="no secret at all"),
    ],
)
def test_a_secret_file_without_a_secret_is_named(desk: Desk, content: str | None, expected: str) -> None:
    if content is not None:
        desk.file("token", content)

    told = desk.problem("[[drain]]\nname = 'a'\ntoken_file = 'token'")

    assert f"'drain[0].token_file' (file {desk.directory / 'trace-drain.toml'}) names" in told
    assert expected in told


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("api_token = ' '", "api_token", id="API token"),
        pytest.param("[store]\npassword = '\t'", "store.password", id="password of the store"),
        pytest.param("[[drain]]\nname = 'a'\ntokens = ['t', '  ']", "drain[0].tokens", id="drain token"),
        pytest.param(
            "[[drain]]\nname = 'a'\nsignature_header = 'x-s'\nsignature_secrets = ['\u2003']",
            "drain[0].signature_secrets",
            id="signature secret",
        ),
    ],
)
def test_a_secret_of_white_space_is_refused_with_its_setting(desk: Desk, text: str, key: str) -> None:
    told = desk.problem(text)

    assert f"'{key}'" in told
    assert "holds nothing but white space; expected a secret" in told


def test_a_token_with_white_space_around_it_is_refused_because_no_header_carries_it(desk: Desk) -> None:
    desk.file("token", "s \n")

    told = desk.problem("[[drain]]\nname = 'a'\ntoken_file = 'token'")

    assert "drain[0] token begins or ends with white space" in told


def test_a_secret_file_that_everyone_can_read_is_warned_about(desk: Desk) -> None:
    desk.file("token", "s", mode=0o644)

    warning, *_ = desk.load("[[drain]]\nname = 'a'\ntoken_file = 'token'").warnings

    assert warning.endswith("is readable by everyone; expected mode 0600 or 0640")


def test_a_journal_that_the_disk_cannot_hold_is_warned_about(desk: Desk) -> None:
    data = f"data_dir = '{desk.directory}/not/made/yet'\n"
    small = desk.load(f"{data}journal.bytes_max = '64MiB'\njournal.disk_free_min = '4MiB'").warnings
    (warning,) = desk.load(f"{data}journal.bytes_max = {1 << 50}").warnings

    assert small == ()
    assert "journal.bytes_max" in warning
    assert "expected at most the" in warning


def test_no_message_and_no_listing_holds_a_secret(desk: Desk) -> None:
    canary = "canary-4711"
    said = f"[[drain]]\nname = 'a'\ntokens = ['{canary}']\n[store]\nurl = 'http://u:{canary}@h'"
    broken = (
        f"[[drain]]\nname = 'a'\ntokens = ['{canary}\u00e9']",
        f"[[drain]]\nname = 'a'\ntokens = '{canary}'",
        f"[store]\nurl = 'tcp://u:{canary}@h'",
        f"[store]\npassword = '{canary}'",
        f"api_token = '{canary}",
    )

    loaded = desk.load(said)

    assert canary not in as_toml(loaded) + as_json(loaded)
    assert loaded.settings.store.password == canary
    for toml in broken:
        assert canary not in desk.problem(toml)


def test_what_is_shown_as_toml_loads_as_the_same_settings(desk: Desk) -> None:
    toml = (
        "data_dir = '/data'\nintakes = 3\n[[drain]]\nname = 'a'\n[[sampling.rule]]\nproject = 'p'\nrate = 0.5"
    )
    loaded = desk.load(toml)

    shown = as_toml(loaded)

    assert tomllib.loads(shown)["drain"][0]["name"] == "a"
    assert desk.load(shown).settings == loaded.settings


def test_what_follows_from_another_setting_is_shown_with_that_origin(desk: Desk) -> None:
    url = {"TRACE_DRAIN_STORE__URL": "http://u:canary@h"}

    shown = json.loads(as_json(desk.load("[sampling]\nrate = 0.5", url)))

    assert shown["store.password"] == {"value": "(set)", "origin": "environment TRACE_DRAIN_STORE__URL"}
    assert shown["sampling.mode"] == {"value": "equalizing", "origin": "because something is to be sampled"}


def test_what_is_shown_as_json_says_who_said_it(desk: Desk) -> None:
    shown = json.loads(as_json(desk.load(environ={"TRACE_DRAIN_API_TOKEN": "s"})))

    assert shown["api_token"] == {"value": "(set)", "origin": "environment TRACE_DRAIN_API_TOKEN"}
    assert shown["journal.codec"] == {"value": "lz4", "origin": "default"}
