"""Tests of the loader: precedence of sources, credentials, secrets, and the listing."""

from __future__ import annotations

import json
import tomllib

import pytest

from receiver.config.keys import INDEX, env_name, env_patterns, spellings
from receiver.config.load import DEFAULT_DRAIN
from receiver.config.show import as_json, as_toml
from receiver.settings import GIB, Settings
from tests.support.config_files import ConfigDirectory


def test_empty_configuration_gives_the_defaults_and_one_open_drain(config_dir: ConfigDirectory) -> None:
    loaded = config_dir.load()

    assert loaded.settings == Settings(drain=(DEFAULT_DRAIN,))
    assert loaded.origins == {}


def test_flags_override_environment_which_overrides_file_which_overrides_default(
    config_dir: ConfigDirectory,
) -> None:
    toml = 'listen = "127.0.0.1:1"\nintakes = 2\nlog_format = "json"'
    environ = {"TRACE_DRAIN_LISTEN": "127.0.0.1:2", "TRACE_DRAIN_INTAKES": "3"}
    flags: dict[str, tuple[str, object]] = {"--listen": ("listen", "127.0.0.1:3")}

    loaded = config_dir.load(toml, environ, flags)

    settings = loaded.settings
    assert (settings.listen, settings.intakes, settings.log_format) == ("127.0.0.1:3", 3, "json")
    assert settings.admin_listen == Settings().admin_listen
    assert loaded.origins == {
        "listen": "flag --listen",
        "intakes": "environment TRACE_DRAIN_INTAKES",
        "log_format": f"file {config_dir.directory / 'trace-drain.toml'}",
    }


def test_complete_example_loads(config_dir: ConfigDirectory) -> None:
    for name in ("token", "secret", "secret.old"):
        config_dir.file(name, f"{name}-content\n")
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

    settings = config_dir.load(toml).settings

    (drain,) = settings.drain
    assert drain.tokens == ("token-content",)
    assert drain.signature_secrets == ("secret-content", "secret.old-content")
    assert settings.journal.bytes_max == 8 * GIB
    assert settings.sampling.rule[0].rate == 0.1
    assert settings.data_dir == str(config_dir.directory / "data")


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
def test_environment_can_give_values_of_every_type(
    config_dir: ConfigDirectory, name: str, text: str, path: str, value: object
) -> None:
    setting: object = config_dir.load(environ={f"TRACE_DRAIN_{name}": text}).settings
    for part in path.split("."):
        setting = getattr(setting, part)

    assert setting == value


def test_drains_can_come_from_the_environment_alone(config_dir: ConfigDirectory) -> None:
    environ = {
        "TRACE_DRAIN_DRAIN__0__NAME": "a",
        "TRACE_DRAIN_DRAIN__0__TOKEN_FILE": config_dir.file("t", "one\n"),
        "TRACE_DRAIN_DRAIN_1_NAME": "b",
        "TRACE_DRAIN_DRAIN__1__TOKENS": "two,three",
    }

    first, second = config_dir.load(environ=environ).settings.drain

    assert (first.name, first.tokens) == ("a", ("one",))
    assert (second.name, second.tokens) == ("b", ("two", "three"))


def test_secret_in_the_environment_overrides_the_file(config_dir: ConfigDirectory) -> None:
    toml = f'[store]\nurl = "http://h"\npassword_file = "{config_dir.file("p", "old")}"'

    settings = config_dir.load(toml, {"TRACE_DRAIN_STORE__PASSWORD": "new"}).settings

    assert settings.store.password == "new"


def test_kubernetes_service_variables_are_ignored(config_dir: ConfigDirectory) -> None:
    environ = {
        "TRACE_DRAIN_SERVICE_HOST": "10.0.0.1",
        "TRACE_DRAIN_SERVICE_PORT_OTLP": "4318",
        "TRACE_DRAIN_PORT": "tcp://10.0.0.1:4318",
        "TRACE_DRAIN_PORT_4318_TCP_ADDR": "10.0.0.1",
    }

    assert config_dir.load(environ=environ).origins == {}


def test_environment_names_are_unambiguous() -> None:
    samples = {path: env_name(path).replace(INDEX, "0").replace("__", "_") for path in spellings()}

    for pattern, form in env_patterns():
        matching = [
            path for path, name in samples.items() if pattern.fullmatch(name.removeprefix("TRACE_DRAIN_"))
        ]
        assert matching == [form.path]


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        pytest.param("", ["without TLS", "drain 'default' requires no credentials"], id="open"),
        pytest.param(
            "behind_proxy = true", ["drain 'default' requires no credentials"], id="proxy without credentials"
        ),
        pytest.param("[[drain]]\nname='a'\ntokens=['s']", ["without TLS"], id="token without TLS"),
        pytest.param(
            "tls.self_signed = true", ["drain 'default' requires no credentials"], id="TLS without token"
        ),
        pytest.param("insecure = true", [], id="insecure on purpose"),
        pytest.param("behind_proxy = true\n[[drain]]\nname='a'\ntokens=['s']", [], id="proxy and token"),
        pytest.param("tls.self_signed = true\n[[drain]]\nname='a'\ntokens=['s']", [], id="TLS and token"),
    ],
)
def test_listening_beyond_loopback_requires_credentials_and_tls(
    config_dir: ConfigDirectory, toml: str, expected: list[str]
) -> None:
    environ = {"TRACE_DRAIN_LISTEN": "0.0.0.0:4318"}

    message = config_dir.problem(toml, **environ) if expected else str(config_dir.load(toml, environ))

    for part in ("without TLS", "drain 'default' requires no credentials"):
        assert (part in message) == (part in expected)


def test_api_beyond_loopback_requires_a_token(config_dir: ConfigDirectory) -> None:
    toml = "api_listen = '0.0.0.0:8318'"

    assert "expected api_token_file" in config_dir.problem(toml)
    assert config_dir.load(toml, {"TRACE_DRAIN_API_TOKEN": "s"}).settings.api_token == "s"


def test_drains_may_share_a_path_if_their_credentials_differ(config_dir: ConfigDirectory) -> None:
    different = "[[drain]]\nname='a'\ntokens=['s']\n[[drain]]\nname='b'\ntokens=['t']"
    overlapping = (
        "[[drain]]\nname='a'\ntokens=['s']\n[[drain]]\nname='b'\npath='/v1/traces/'\ntokens=['t', 's']"
    )

    assert len(config_dir.load(different).settings.drain) == 2
    assert "and cannot be distinguished" in config_dir.problem(overlapping)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param("\n", "which is empty; expected a secret", id="empty"),
        pytest.param(" \t\n", "which contains only white space; expected a secret", id="white space"),
        pytest.param("x" * 70_000, "which is over 64 KiB", id="too large"),
    ],
)
def test_secret_file_without_a_secret_is_refused(
    config_dir: ConfigDirectory, content: str | None, expected: str
) -> None:
    if content is not None:
        config_dir.file("token", content)

    message = config_dir.problem("[[drain]]\nname = 'a'\ntoken_file = 'token'")

    assert f"'drain[0].token_file' (file {config_dir.directory / 'trace-drain.toml'}) names" in message
    assert expected in message


def test_world_readable_secret_file_causes_a_warning(config_dir: ConfigDirectory) -> None:
    config_dir.file("token", "s", mode=0o644)

    warning, *_ = config_dir.load("[[drain]]\nname = 'a'\ntoken_file = 'token'").warnings

    assert warning.endswith("is readable by everyone; expected mode 0600 or 0640")


def test_journal_larger_than_the_disk_causes_a_warning(config_dir: ConfigDirectory) -> None:
    data = f"data_dir = '{config_dir.directory}/not/made/yet'\n"
    small = config_dir.load(f"{data}journal.bytes_max = '64MiB'\njournal.disk_free_min = '4MiB'").warnings
    (warning,) = config_dir.load(f"{data}journal.bytes_max = {1 << 50}").warnings

    assert small == ()
    assert "journal.bytes_max" in warning
    assert "expected at most the" in warning


def test_no_message_and_no_listing_contains_a_secret(config_dir: ConfigDirectory) -> None:
    canary = "canary-4711"
    valid = f"[[drain]]\nname = 'a'\ntokens = ['{canary}']\n[store]\nurl = 'http://u:{canary}@h'"
    broken = (
        f"[[drain]]\nname = 'a'\ntokens = ['{canary}\u00e9']",
        f"[[drain]]\nname = 'a'\ntokens = '{canary}'",
        f"[store]\nurl = 'tcp://u:{canary}@h'",
        f"[store]\npassword = '{canary}'",
        f"api_token = '{canary}",
    )

    loaded = config_dir.load(valid)

    assert canary not in as_toml(loaded) + as_json(loaded)
    assert loaded.settings.store.password == canary
    for toml in broken:
        assert canary not in config_dir.problem(toml)


def test_toml_listing_loads_as_the_same_settings(config_dir: ConfigDirectory) -> None:
    toml = (
        "data_dir = '/data'\nintakes = 3\n[[drain]]\nname = 'a'\n[[sampling.rule]]\nproject = 'p'\nrate = 0.5"
    )
    loaded = config_dir.load(toml)

    listing = as_toml(loaded)

    assert tomllib.loads(listing)["drain"][0]["name"] == "a"
    assert config_dir.load(listing).settings == loaded.settings


def test_toml_listing_has_no_placeholder_that_could_be_used_as_a_value(config_dir: ConfigDirectory) -> None:
    shown = as_toml(config_dir.load("[[drain]]\nname = 'a'\ntokens = ['canary']"))

    comments = [line.partition("  #")[0].rstrip() for line in shown.splitlines() if line.startswith("#")]
    assert "# tokens is set and not shown" in comments
    assert "# connections_per_address_max is not set" in comments
    for comment in comments:
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(comment.removeprefix("# "))


def test_derived_setting_is_listed_with_its_origin(config_dir: ConfigDirectory) -> None:
    url = {"TRACE_DRAIN_STORE__URL": "http://u:canary@h"}

    listing = json.loads(as_json(config_dir.load("[sampling]\nrate = 0.5", url)))

    assert listing["store.password"] == {"value": "(set)", "origin": "environment TRACE_DRAIN_STORE__URL"}
    assert listing["sampling.mode"] == {
        "value": "equalizing",
        "origin": "derived: a sampling rate or rule is set",
    }


def test_json_listing_contains_origins(config_dir: ConfigDirectory) -> None:
    listing = json.loads(as_json(config_dir.load(environ={"TRACE_DRAIN_API_TOKEN": "s"})))

    assert listing["api_token"] == {"value": "(set)", "origin": "environment TRACE_DRAIN_API_TOKEN"}
    assert listing["journal.codec"] == {"value": "lz4", "origin": "default"}
