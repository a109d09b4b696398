"""Truncated redelivery log: copies are still recognised, or the loss is reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from receiver.ledger.ledger import Ledger
from receiver.redelivery import decisions
from receiver.redelivery.window import GENERATIONS
from receiver.settings import Ledger as Limits
from tests.support.redelivery import Harness


def log_paths(harness: Harness) -> list[Path]:
    return sorted((harness.directory / "redelivery").glob("*.log"))


def after_three_segments(directory: Path) -> Harness:
    """Return a harness that stored three segments and whose writer was killed."""
    directory.mkdir()
    harness = Harness(directory)
    for number in (1, 2, 3):
        harness.add([number])
        harness.drain()
    harness.kill()
    return harness


def ends_of_entries(log: bytes) -> list[int]:
    entries = decisions.read(log).entries
    return [len(decisions.written(entries[:count])) for count in range(len(entries))]


def is_loss_reported(harness: Harness) -> bool:
    return harness.progress.window_trouble != ""


@pytest.mark.fault("the redelivery log is truncated at each entry, or deleted, while the receiver is stopped")
def test_cut_log_stores_no_copy_unless_the_loss_is_reported(tmp_path: Path) -> None:
    (log,) = log_paths(after_three_segments(tmp_path / "whole"))
    ends = ends_of_entries(log.read_bytes())
    assert len(ends) == 7
    reports = []
    for end in [*ends, None]:
        harness = after_three_segments(tmp_path / f"cut at {end}")
        (log,) = log_paths(harness)
        if end is None:
            log.unlink()
        else:
            log.write_bytes(log.read_bytes()[:end])

        harness.add([1], [2], [3])
        harness.drain()

        assert harness.is_exact or is_loss_reported(harness)
        reports.append(is_loss_reported(harness))
    assert reports == [True] * 6 + [False, True]


def test_cut_log_is_reported_once_and_the_next_log_is_trusted(tmp_path: Path) -> None:
    harness = after_three_segments(tmp_path / "data")
    (log,) = log_paths(harness)
    log.write_bytes(log.read_bytes()[:-200])
    harness.start().drain()
    harness.kill()
    window = harness.opened_window(harness.opened_ledger())
    harness.monotonic_s += harness.limits.window_s + 1
    window.tick()
    assert window.shortfall == ""
    window.close()

    reopened = harness.opened_window(harness.opened_ledger())

    assert reopened.shortfall == ""


def test_older_copy_of_the_directory_is_reported(tmp_path: Path) -> None:
    harness = after_three_segments(tmp_path / "data")
    shutil.copytree(harness.directory / "redelivery", tmp_path / "copy")
    harness.limits = type(harness.limits)(entries_max=GENERATIONS)
    harness.add([4])
    harness.drain()
    harness.add([5])
    harness.drain()
    harness.kill()
    shutil.rmtree(harness.directory / "redelivery")
    shutil.copytree(tmp_path / "copy", harness.directory / "redelivery")

    assert harness.opened_window(harness.opened_ledger()).shortfall != ""


def test_rewritten_ledger_keeps_the_extent_of_the_redelivery_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.ledger.ledger.LOG_BYTES_MIN", 0)
    harness = after_three_segments(tmp_path / "data")
    before = harness.opened_ledger().window

    assert len(list((harness.directory / "ledger").glob("*.log"))) == 1
    assert before > (0, 0)
    assert Ledger(harness.directory / "ledger", Limits(), lambda: 0.0, is_first=False).window == before
