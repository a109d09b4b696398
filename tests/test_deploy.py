"""What `deploy/` says agrees with what the program takes."""

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

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_the_example_configuration_loads_once_its_files_are_there(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "trace-drain.toml", tmp_path)
    (tmp_path / "token").write_text("s")
    made = with_certificate(Settings(tls=Tls(self_signed=True)), tmp_path).tls
    shutil.copy(made.cert_file, tmp_path / "tls.crt")
    shutil.copy(made.key_file, tmp_path / "tls.key")

    said = Sources(str(tmp_path / "trace-drain.toml"), {}, {}).load().settings

    assert said.listen == "0.0.0.0:4318"
    assert said.drain[0].tokens == ("s",)


def test_what_the_example_comments_out_is_known_too(tmp_path: Path) -> None:
    text = (DEPLOY / "trace-drain.toml").read_text()
    shown = re.sub(r"^# (?=\[\[|\w+ = )", "", text, flags=re.MULTILINE).replace(
        'mode = "off"', 'mode = "equalizing"'
    )
    (tmp_path / "all.toml").write_text(shown)

    with pytest.raises(OperatorError, match="cannot be read") as caught:
        Sources(str(tmp_path / "all.toml"), {}, {}).load()

    assert "is no setting" not in str(caught.value)


def commented(name: str) -> str:
    """The commands that a file's head tells somebody to type."""
    head = takewhile(lambda line: line.startswith("#"), (DEPLOY / name).read_text().splitlines())
    return "\n".join(line.removeprefix("#").strip() for line in head)


def test_the_example_of_the_image_brings_every_file_that_its_configuration_names() -> None:
    named = re.findall(r'^\w+_file = "(.+?)"', (DEPLOY / "trace-drain.toml").read_text(), flags=re.MULTILINE)
    typed = commented("Dockerfile")

    assert sorted(named) == ["tls.crt", "tls.key", "token"]
    assert [name for name in named if f"conf/{name}" not in typed] == []
    assert "cp deploy/trace-drain.toml conf/ " in typed
    assert '-v "$PWD/conf:/etc/trace-drain:ro"' in typed
    assert "serve --config /etc/trace-drain/trace-drain.toml" in typed


@pytest.mark.parametrize(("name", "place"), [("Dockerfile", "conf"), ("compose/compose.yaml", "secrets/\\*")])
def test_the_files_of_an_example_are_the_images_users_alone(name: str, place: str) -> None:
    (user,) = re.findall(r"^USER (\d+)", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    typed = commented(name)

    modes = [int(mode, 8) for mode in re.findall(r"chmod (\d+)", typed)]

    assert modes
    assert not any(mode & stat.S_IROTH for mode in modes)
    assert re.search(rf"chown (-R )?{user}(:101)? {place}", typed)


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    for path in (file for file in DEPLOY.rglob("*") if file.is_file()):
        assert not re.search(r"pip install .*trace-drain-receiver", path.read_text()), path


@pytest.mark.parametrize("name", ["Dockerfile", "compose/compose.yaml", "systemd/trace-drain.service"])
def test_every_variable_is_a_setting(name: str) -> None:
    said = set(re.findall(r"\bTRACE_DRAIN_\w+(?=[=:])", (DEPLOY / name).read_text()))

    assert said
    assert from_environment(dict.fromkeys(said, "")).problems == []
