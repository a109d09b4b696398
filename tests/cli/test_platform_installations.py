"""`trace-drain platform installations`, of a running receiver and without a receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.console.api.lines import end_line
from receiver.platform.api import entries
from receiver.platform.installations.installations import Installations
from tests.support.fake_api import ApiHandler, receiver_with
from tests.support.installations import T0_S, TOKEN, installation


class InstallationsApi(ApiHandler):
    """Answer with the installations of a directory."""

    directory: Path

    def lines_for(self, query: dict[str, str]) -> list[str]:
        assert self.path == "/api/v1/platform/installations"
        assert query == {}
        rows = [msgspec.json.encode(row).decode() for row in entries(Installations(self.directory))]
        return [*rows, end_line(len(rows)).decode().strip()]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[str]:
    InstallationsApi.directory = tmp_path / "platform"
    with receiver_with(InstallationsApi, tmp_path) as directory:
        yield directory


def run(data_dir: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["platform", "installations", "--data", data_dir, *arguments])


def add_three() -> None:
    stored = Installations(InstallationsApi.directory)
    stored.add(installation("icfg_old"), TOKEN)
    stored.set_state("icfg_old", "removed", T0_S + 1)
    stored.add(installation("icfg_off", installed_at_s=T0_S + 2, scopes=("team\x1b[2J",)), TOKEN)
    stored.set_state("icfg_off", "disabled", T0_S + 3)
    stored.add(installation("icfg_new", installed_at_s=T0_S + 4, team_id=""), TOKEN)


def test_table_has_every_installation(data_dir: str) -> None:
    add_three()

    result = run(data_dir)

    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        ["icfg_new", "active"],
        ["icfg_off", "disabled"],
        ["icfg_old", "removed"],
    ]
    assert rows[1][3:] == ["(account)", "not", "known", "plain", "-"]
    assert rows[2][-1] == "2027-02-14T08:00:03+00:00"
    assert rows[3][-2:] == ["none", "-"]
    assert "\x1b" not in result.output
    assert TOKEN not in result.output


def test_json_has_an_object_per_line(data_dir: str) -> None:
    add_three()

    result = run(data_dir, "--format", "json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["icfg_new", "icfg_off", "icfg_old"]
    assert rows[1]["scopes"] == ["team\x1b[2J"]
    assert TOKEN not in result.output


def test_no_installation_leads_to_the_page(data_dir: str) -> None:
    assert "no installations; the page /platform installs" in run(data_dir).stdout


def test_without_a_receiver_the_files_are_not_opened(tmp_path: Path) -> None:
    result = run(str(tmp_path))

    assert result.exit_code == 1
    assert "no receiver runs" in result.output
    assert list(tmp_path.iterdir()) == []
