"""Tests that the files in `deploy/` match what the program accepts."""

from __future__ import annotations

import re
import shutil
import stat
from itertools import takewhile
from pathlib import Path

import pytest

from receiver.config.load import Sources
from receiver.config.sources import from_environment
from receiver.errors import OperatorError
from receiver.settings import Settings, Tls
from receiver.supervisor.certificate import with_certificate

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def test_example_configuration_loads_with_its_files(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "trace-drain.toml", tmp_path)
    (tmp_path / "token").write_text("s")
    tls = with_certificate(Settings(tls=Tls(self_signed=True)), tmp_path).tls
    shutil.copy(tls.cert_file, tmp_path / "tls.crt")
    shutil.copy(tls.key_file, tmp_path / "tls.key")

    settings = Sources(str(tmp_path / "trace-drain.toml"), {}, {}).load().settings

    assert settings.listen == "0.0.0.0:4318"
    assert settings.drain[0].tokens == ("s",)


def test_commented_settings_of_the_example_are_known(tmp_path: Path) -> None:
    text = (DEPLOY / "trace-drain.toml").read_text()
    uncommented = re.sub(r"^# (?=\[\[|\w+ = )", "", text, flags=re.MULTILINE).replace(
        'mode = "off"', 'mode = "equalizing"'
    )
    (tmp_path / "all.toml").write_text(uncommented)

    with pytest.raises(OperatorError, match="cannot be read") as caught:
        Sources(str(tmp_path / "all.toml"), {}, {}).load()

    assert "is no setting" not in str(caught.value)


def commands_of(file: str) -> str:
    """Return a page with commands, or the comment at the head of another file."""
    text = (ROOT / file).read_text()
    if file.endswith(".md"):
        return text
    head = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return "\n".join(line.removeprefix("#").strip() for line in head)


def test_image_example_provides_every_file_of_its_configuration() -> None:
    files = re.findall(r'^\w+_file = "(.+?)"', (DEPLOY / "trace-drain.toml").read_text(), flags=re.MULTILINE)
    commands = commands_of("docs/install.md")

    assert sorted(files) == ["tls.crt", "tls.key", "token"]
    assert [name for name in files if f"conf/{name}" not in commands] == []
    assert "cp deploy/trace-drain.toml conf/\n" in commands
    assert "-v /etc/trace-drain:/etc/trace-drain:ro" in commands
    assert "-e TRACE_DRAIN_CONFIG=/etc/trace-drain/trace-drain.toml" in commands


@pytest.mark.parametrize(
    ("file", "path"), [("docs/install.md", "conf/\\*"), ("deploy/compose/compose.yaml", "secrets/\\*")]
)
def test_files_of_an_example_are_readable_only_by_the_user_of_the_image(file: str, path: str) -> None:
    (user,) = re.findall(r"^USER (\d+)", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    commands = commands_of(file)

    modes = [int(mode, 8) for mode in re.findall(r"(?:chmod|-m) (\d+)", commands)]

    assert modes
    assert not any(mode & stat.S_IROTH for mode in modes)
    assert re.search(rf"(chown|install -o) {user}(:101)?( -m 0400)? {path}", commands)


def test_package_is_not_installed_from_a_public_index() -> None:
    for path in (file for file in DEPLOY.rglob("*") if file.is_file()):
        assert not re.search(r"pip install .*trace-drain-receiver", path.read_text()), path


@pytest.mark.parametrize("name", ["Dockerfile", "compose/compose.yaml", "systemd/trace-drain.service"])
def test_every_environment_variable_is_a_setting(name: str) -> None:
    variables = set(re.findall(r"\bTRACE_DRAIN_\w+(?=[=:])", (DEPLOY / name).read_text()))

    assert variables
    assert from_environment(dict.fromkeys(variables, "")).problems == []
