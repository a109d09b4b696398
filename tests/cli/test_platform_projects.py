"""Tests of `trace-drain platform projects | keep-project` without a receiver, and of their table."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.cli.platform.platform_projects import _table


@pytest.mark.parametrize("arguments", [["projects"], ["keep-project", "prj_1"]])
def test_removed_projects_need_a_receiver_that_runs(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["platform", *arguments, "--data", str(tmp_path)])

    assert result.exit_code == 1
    assert "no receiver runs" in result.output


def test_table_shows_when_spans_are_due() -> None:
    row = {"id": "prj_1", "name": "", "removed_at_s": 1_800_000_000.0, "due_at_s": 1_802_592_000.0}

    lines = list(_table([{**row, "is_kept": False}, {**row, "is_kept": True, "name": "shop"}]))

    assert lines[1].split() == [
        *("prj_1", "-", "2027-01-15", "08:00"),
        *("due", "for", "deletion", "from", "2027-02-14", "08:00"),
    ]
    assert lines[2].split() == ["prj_1", "shop", "2027-01-15", "08:00", "kept"]
    assert list(_table([])) == ["no project was removed"]
