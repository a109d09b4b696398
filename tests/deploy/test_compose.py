"""The Compose file: its parts find each other, their files and their secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from receiver.config.load import Sources
from tests.deploy.engine_as_role import grants_of

COMPOSE: Final = Path(__file__).parents[2] / "deploy/compose"
TEXT: Final = (COMPOSE / "compose.yaml").read_text()
DATA_SOURCES: Final = (COMPOSE / "../grafana/provisioning/datasources/trace-drain.yaml").read_text()
PROMETHEUS: Final = (COMPOSE / "../prometheus/prometheus.yml").read_text()


def services() -> dict[str, str]:
    """Return the text of each service by its name."""
    body = TEXT.partition("\nservices:\n")[2].partition("\nsecrets:\n")[0]
    _, *parts = re.split(r"^  (\w+):$", body, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_mounted_file_exists() -> None:
    mounted = re.findall(r"^ +- (\.[^:]+):/", TEXT, re.MULTILINE)

    assert mounted
    assert [path for path in mounted if not (COMPOSE / path).exists()] == []


def test_commands_create_exactly_the_secrets_that_services_use() -> None:
    (created,) = re.findall(r"for name in ([\w ]+); do", TEXT)
    declared = re.findall(r"file: secrets/(\w+)", TEXT)
    granted = {
        (service, secret)
        for service, text in services().items()
        for names in re.findall(r"secrets: \[(.+)\]|source: (\w+)", text)
        for secret in "".join(names).split(", ")
    }
    path = r"/run/secrets/(\w+)"
    read = {(service, secret) for service, text in services().items() for secret in re.findall(path, text)}

    # Files that git creates later in this shell are readable, and the commands can be run again.
    assert "(umask 077" in TEXT
    assert "secrets/* && sudo chmod" in TEXT
    assert sorted(created.split()) == sorted(declared) == sorted({secret for _, secret in granted})
    # Prometheus reads its token beside its configuration.
    assert granted - {("prometheus", "viewer_token")} == read


def test_prometheus_has_every_file_that_its_configuration_names() -> None:
    named = re.findall(r"^  - (\S+\.yml)$|credentials_file: (\S+)", PROMETHEUS, re.MULTILINE)

    assert len(named) > 1
    for name in map("".join, named):
        assert f"/etc/prometheus/{name}" in services()["prometheus"], name


def test_every_host_of_the_configurations_is_a_service() -> None:
    hosts = set(re.findall(r"(?:host: |http://|targets: \[\")([\w.]+)", DATA_SOURCES + PROMETHEUS))
    in_browser = re.findall(r"trace_drain_url: http://(\S+)", PROMETHEUS)

    assert f'"{in_browser[0]}:8318"' in services()["receiver"]
    assert hosts - {"127.0.0.1"} == {"clickhouse", "prometheus", "receiver"} <= set(services())


def test_grafana_reads_clickhouse_as_a_user_with_the_rights_of_the_reader() -> None:
    users = ET.parse(COMPOSE / "clickhouse-users.xml").find("users")  # noqa: S314 - our own file
    assert users is not None
    (user,) = users
    password = user.find("password")
    assert password is not None

    assert f"username: {user.tag}\n" in DATA_SOURCES
    assert f'{password.get("from_env")}="$$(cat ' in services()["clickhouse"]
    assert [query.text for query in user.iter("query")] == grants_of("trace_drain_reader")
    for variable in re.findall(r"\$([A-Z_]+)", DATA_SOURCES):
        assert f'{variable}="$$(cat ' in services()["grafana"], variable


def test_receiver_accepts_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.findall(r'^      (TRACE_DRAIN_\w+): "?([^"\n]+)', services()["receiver"], re.MULTILINE)
    environ = {name: value.replace("/run/secrets", str(tmp_path)) for name, value in found}
    for name in re.findall(r"/run/secrets/(\w+)", services()["receiver"]):
        (tmp_path / name).write_text(f"random text of {name}")
    monkeypatch.chdir(tmp_path)

    settings = Sources(None, environ, {}).load().settings

    assert settings.api_hosts == ("receiver",)
    assert settings.api.span_metrics
    (user,) = settings.api.user
    assert (user.role, user.token) == ("viewer", "random text of viewer_token")
