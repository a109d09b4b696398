"""What `deploy/` says agrees with what the program takes."""

from __future__ import annotations

import re
import shutil
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


@pytest.mark.parametrize("name", ["Dockerfile", "compose/compose.yaml", "systemd/trace-drain.service"])
def test_every_variable_is_a_setting(name: str) -> None:
    said = set(re.findall(r"\bTRACE_DRAIN_\w+(?=[=:])", (DEPLOY / name).read_text()))

    assert said
    assert from_environment(dict.fromkeys(said, "")).problems == []
