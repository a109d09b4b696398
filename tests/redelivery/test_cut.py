"""A redelivery log that lost what was on the disk: a copy is left out all the same, or it is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from receiver.ledger.ledger import Ledger
from receiver.redelivery import decisions
from receiver.redelivery.window import GENERATIONS
from receiver.settings import Ledger as Limits
from tests.support.redelivery import Mill


def logs_of(mill: Mill) -> list[Path]:
    return sorted((mill.directory / "redelivery").glob("*.log"))


def worked(directory: Path) -> Mill:
    """Three segments stored one after the other, and a writer that was killed."""
    directory.mkdir()
    mill = Mill(directory)
    for number in (1, 2, 3):
        mill.add([number])
        mill.drain()
    mill.kill()
    return mill


def ends_of_entries(log: bytes) -> list[int]:
    entries = decisions.read(log).entries
    return [len(decisions.written(entries[:count])) for count in range(len(entries))]


def is_told(mill: Mill) -> bool:
    return mill.progress.window_trouble != ""


@pytest.mark.fault("the redelivery log cut short at each of its entries, or gone, while nothing ran")
def test_cut_log_stores_no_copy_unless_the_loss_is_reported(tmp_path: Path) -> None:
    (log,) = logs_of(worked(tmp_path / "whole"))
    ends = ends_of_entries(log.read_bytes())
    assert len(ends) == 7
    told = []
    for end in [*ends, None]:
        mill = worked(tmp_path / f"cut at {end}")
        (log,) = logs_of(mill)
        if end is None:
            log.unlink()
        else:
            log.write_bytes(log.read_bytes()[:end])

        mill.add([1], [2], [3])
        mill.drain()

        assert mill.is_exact or is_told(mill)
        told.append(is_told(mill))
    assert told == [True] * 6 + [False, True]


def test_cut_log_is_reported_once_and_the_next_log_is_trusted(tmp_path: Path) -> None:
    mill = worked(tmp_path / "data")
    (log,) = logs_of(mill)
    log.write_bytes(log.read_bytes()[:-200])
    mill.start().drain()
    mill.kill()
    window = mill.opened_window(mill.opened_ledger())
    mill.monotonic_s += mill.limits.window_s + 1
    window.tick()
    assert window.shortfall == ""
    window.close()

    again = mill.opened_window(mill.opened_ledger())

    assert again.shortfall == ""


def test_older_copy_of_the_directory_is_reported(tmp_path: Path) -> None:
    mill = worked(tmp_path / "data")
    shutil.copytree(mill.directory / "redelivery", tmp_path / "copy")
    mill.limits = type(mill.limits)(entries_max=GENERATIONS)
    mill.add([4])
    mill.drain()
    mill.add([5])
    mill.drain()
    mill.kill()
    shutil.rmtree(mill.directory / "redelivery")
    shutil.copytree(tmp_path / "copy", mill.directory / "redelivery")

    assert mill.opened_window(mill.opened_ledger()).shortfall != ""


def test_rewritten_ledger_keeps_the_extent_of_the_redelivery_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.ledger.ledger.LOG_BYTES_MIN", 0)
    mill = worked(tmp_path / "data")
    before = mill.opened_ledger().window

    assert len(list((mill.directory / "ledger").glob("*.log"))) == 1
    assert before > (0, 0)
    assert Ledger(mill.directory / "ledger", Limits(), lambda: 0.0, is_first=False).window == before
