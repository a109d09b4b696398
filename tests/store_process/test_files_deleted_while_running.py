"""Files of ledger or deduplication window deleted under a running writer: recreated and reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli import main
from receiver.redelivery.window import GENERATIONS
from receiver.settings import Redelivery
from tests.support.redelivery import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A running writer: some generations of the window are closed, and the newest holds one segment."""
    harness = Harness(tmp_path, limits=Redelivery(entries_max=GENERATIONS * 2))
    for number in (1, 2, 3, 4, 5):
        harness.add([number])
        harness.drain()
    return harness


def remove(directory: Path, kind: str) -> None:
    if kind == "directory":
        shutil.rmtree(directory)
    elif kind == "replaced":
        shutil.copytree(directory, directory.with_name("copy"))
        shutil.rmtree(directory)
        directory.with_name("copy").rename(directory)
    else:
        for path in directory.glob(f"*.{kind}"):
            path.unlink()


@pytest.mark.fault("DATA/ledger or DATA/redelivery deleted or replaced while the receiver runs")
@pytest.mark.parametrize(
    ("directory", "removal"),
    [
        *(("ledger", kind) for kind in ("directory", "replaced", "log")),
        *(("redelivery", kind) for kind in ("directory", "replaced", "log", "table")),
    ],
)
@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_removed_files_are_recreated_and_reported(
    harness: Harness, directory: str, removal: str, *, is_busy: bool
) -> None:
    remove(harness.directory / directory, removal)

    if is_busy:
        harness.add([5, 6])
    harness.drain()
    assert harness.progress.alarms == 1
    harness.kill()
    harness.add([1, 2, 3, 4, 5, 6])
    harness.drain()

    assert harness.is_exact
    assert harness.is_ledger_exact
    assert harness.progress.window_trouble == ""
    assert harness.progress.alarms == 1


def test_ledger_command_fails_if_the_ledger_was_removed_while_stopped(harness: Harness) -> None:
    harness.kill()
    shutil.rmtree(harness.directory / "ledger")

    result = CliRunner().invoke(main, ["ledger", "--data", str(harness.directory)])

    assert result.exit_code == 1
    assert "ledger is missing or damaged" in result.output


def test_ledger_command_succeeds_if_no_ledger_was_ever_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["ledger", "--data", str(tmp_path)])

    assert (result.exit_code, "missing" in result.output) == (0, False)
