"""`trace-drain platform installations | projects | keep-project`, with and without a running receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from receiver.cli.platform.platform_projects import _table as removed_projects_table
from receiver.console.api.lines import end_line
from receiver.platform.api import entries
from receiver.platform.installations.installations import Installations
from tests.support import commands
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
    return commands.run("platform", "installations", "--data", data_dir, *arguments)


def add_three() -> None:
    stored = Installations(InstallationsApi.directory)
    stored.add(installation("icfg_old"), TOKEN)
    stored.set_state("icfg_old", "removed", T0_S + 1)
    stored.add(installation("icfg_off", installed_at_s=T0_S + 2, scopes=("team\x1b[2J",)), TOKEN)
    stored.set_state("icfg_off", "disabled", T0_S + 3)
    stored.add(installation("icfg_new", installed_at_s=T0_S + 4, team_id=""), TOKEN)


def test_table_and_json_have_every_installation_and_no_token(data_dir: str) -> None:
    add_three()

    result, document = run(data_dir), run(data_dir, "--format", "json")

    assert (result.exit_code, document.exit_code) == (0, 0), result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        ["icfg_new", "active"],
        ["icfg_off", "disabled"],
        ["icfg_old", "removed"],
    ]
    assert rows[1][3:] == ["(account)", "not", "known", "plain", "-"]
    assert rows[2][-1] == "2027-02-14T08:00:03+00:00"
    assert rows[3][-2:] == ["none", "-"]
    objects = [json.loads(line) for line in document.stdout.splitlines()]
    assert [each["id"] for each in objects] == ["icfg_new", "icfg_off", "icfg_old"]
    assert objects[1]["scopes"] == ["team\x1b[2J"]
    assert "\x1b" not in result.output
    assert TOKEN not in result.output + document.output


def test_no_installation_leads_to_the_page(data_dir: str) -> None:
    assert "no installations; the page /platform installs" in run(data_dir).stdout


@pytest.mark.parametrize("command", ["installations", "projects", "keep-project prj_1"])
def test_without_a_receiver_the_files_are_not_opened(tmp_path: Path, command: str) -> None:
    result = commands.run("platform", *command.split(), "--data", str(tmp_path))

    assert result.exit_code == 1
    assert "no receiver runs" in result.output
    assert list(tmp_path.iterdir()) == []


def test_table_of_removed_projects_shows_when_spans_are_due() -> None:
    row = {"id": "prj_1", "name": "", "removed_at_s": 1_800_000_000.0, "due_at_s": 1_802_592_000.0}

    lines = list(
        removed_projects_table([{**row, "is_kept": False}, {**row, "is_kept": True, "name": "shop"}])
    )

    assert lines[1].split() == [
        *("prj_1", "-", "2027-01-15", "08:00"),
        *("due", "for", "deletion", "from", "2027-02-14", "08:00"),
    ]
    assert lines[2].split() == ["prj_1", "shop", "2027-01-15", "08:00", "kept"]
    assert list(removed_projects_table([])) == ["no project was removed"]
