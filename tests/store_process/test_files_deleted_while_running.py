"""What the writer knows is taken away under it: it is written anew out of memory, and it is told."""

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
    """A writer at work: some generations of the window are closed, one segment is stored in the newest."""
    harness = Harness(tmp_path, limits=Redelivery(entries_max=GENERATIONS * 2))
    for number in (1, 2, 3, 4, 5):
        harness.add([number])
        harness.drain()
    return harness


def take_away(directory: Path, kind: str) -> None:
    if kind == "directory":
        shutil.rmtree(directory)
    elif kind == "exchanged":
        shutil.copytree(directory, directory.with_name("copy"))
        shutil.rmtree(directory)
        directory.with_name("copy").rename(directory)
    else:
        for path in directory.glob(f"*.{kind}"):
            path.unlink()


@pytest.mark.fault("DATA/ledger or DATA/redelivery deleted or exchanged under a running receiver")
@pytest.mark.parametrize(
    ("what", "kind"),
    [
        *(("ledger", kind) for kind in ("directory", "exchanged", "log")),
        *(("redelivery", kind) for kind in ("directory", "exchanged", "log", "table")),
    ],
)
@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_what_was_taken_away_is_whole_again_and_told(
    harness: Harness, what: str, kind: str, *, is_busy: bool
) -> None:
    take_away(harness.directory / what, kind)

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


def test_a_ledger_that_was_taken_away_is_missed_by_whoever_asks_while_nothing_runs(harness: Harness) -> None:
    harness.kill()
    shutil.rmtree(harness.directory / "ledger")

    found = CliRunner().invoke(main, ["ledger", "--data", str(harness.directory)])

    assert found.exit_code == 1
    assert "ledger is missing or damaged" in found.output


def test_a_ledger_that_was_never_begun_is_missed_by_nobody(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["ledger", "--data", str(tmp_path)])

    assert (found.exit_code, "missing" in found.output) == (0, False)
