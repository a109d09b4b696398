"""Start of the writer on files that cannot be deleted or listed, and on pipes in place of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.clock import read_belief
from receiver.durable.files import DISK, open_to_read
from receiver.errors import CommandFailed
from receiver.journal.names import Kind, file_name, start_name
from receiver.journal.segments import Journal
from receiver.model import SegmentId
from receiver.redelivery.digests import FrozenTable
from receiver.supervisor.state import STATE_NAME, read_state
from tests.support.redelivery import Harness
from tests.writer.test_splitting import harness_with_row_limit

LEFTOVERS = {
    "draft of a plan": "splits/.x.json.tmp",
    "draft of a ledger log": "ledger/.0000000099.log.tmp",
    "draft of the ledger's head": ".ledger.head.tmp",
    "draft of a log of the window": "redelivery/.0000000099.log.tmp",
    "old log of the window": "redelivery/0000000000.log",
    "table that the newest log still holds": "redelivery/0000000099.table",
}


@pytest.mark.parametrize("code", [errno.EIO, errno.EPERM], ids=["EIO", "EPERM"])
@pytest.mark.parametrize("name", LEFTOVERS.values(), ids=LEFTOVERS)
def test_leftover_file_that_cannot_be_deleted_is_reported_and_loses_no_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    harness = harness_with_row_limit(tmp_path)
    harness.add([5])
    harness.run_turns(2)
    leftover, unlink = tmp_path / name, DISK.unlink
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_bytes(b"")

    def refuse(path: Path) -> None:
        if path == leftover:
            raise OSError(code, os.strerror(code))
        unlink(path)

    monkeypatch.setattr(DISK, "unlink", refuse)
    with capture_logs() as logged:
        harness.start()
        harness.add([4])
        harness.drain()

    assert harness.is_exact
    assert harness.is_ledger_exact
    assert str(leftover) in {line.get("path") for line in logged}


@pytest.mark.parametrize("directory", ["splits", "redelivery"])
def test_writer_does_not_start_without_the_plans_and_the_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    harness = harness_with_row_limit(tmp_path)
    harness.add([5, 4])
    while not list(tmp_path.glob("splits/*.json")):
        harness.run_turns(1)
    names = DISK.names

    def refuse(path: Path) -> list[str]:
        if path == tmp_path / directory:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return names(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "names", refuse)
        with pytest.raises(PermissionError):
            harness.start()

    harness.start()
    harness.drain()
    assert harness.is_exact
    assert harness.is_ledger_exact


def test_draft_of_a_segment_that_cannot_be_deleted_does_not_hide_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = tmp_path / start_name(1)
    epoch.mkdir()
    (epoch / file_name(1, Kind.LZ4)).write_bytes(b"")
    (epoch / file_name(1, Kind.DRAFT)).write_bytes(b"")

    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(DISK, "unlink", refuse)

    assert [segment.id for segment in Journal(tmp_path).sealed()] == [SegmentId(1, 1)]


def _state_of(path: Path) -> None:
    path.rename(path.with_name(STATE_NAME))
    with pytest.raises(CommandFailed):
        read_state(path.parent)


def _belief_of(path: Path) -> None:
    assert read_belief(path) is None


def _refused(read: Callable[[Path], object]) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        with pytest.raises(OSError, match="not a regular file"):
            read(path)

    return check


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(_refused(DISK.read), id="a whole file"),
        pytest.param(_refused(lambda path: DISK.read_head(path, 1)), id="beginning of a file"),
        pytest.param(_refused(open_to_read), id="a file"),
        pytest.param(_refused(FrozenTable.open), id="table of the window"),
        pytest.param(_state_of, id="state of the receiver"),
        pytest.param(_belief_of, id="trusted clock"),
    ],
)
def test_pipe_in_place_of_a_file_does_not_block(tmp_path: Path, check: Callable[[Path], None]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    check(path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["ledger", "redelivery"])
def test_writer_does_not_block_on_a_pipe_in_place_of_a_log(tmp_path: Path, name: str) -> None:
    harness = Harness(tmp_path)
    harness.add([5])
    harness.drain()
    (log,) = (tmp_path / name).glob("*.log")
    log.unlink()
    os.mkfifo(log)

    with pytest.raises(OSError, match="not a regular file"):
        harness.start()
