"""One small disk for the journal and the embedded engine: the engine stops first, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import SPANS_PER_REQUEST, pid_of, trace_body
from tests.faults.loaded_receiver import wait_for_condition

MIB = 1 << 20
DISK_BYTES = 256 * MIB
JOURNAL_BYTES = MIB
FLOOR_BYTES = 16 * MIB
LEFT_BYTES = FLOOR_BYTES + JOURNAL_BYTES // 2
"""Less free space than the engine requires, more than the journal requires."""

CONFIG = f"[journal]\nbytes_max = {JOURNAL_BYTES}\nsegment_bytes_max = 65536\ndisk_free_min = {FLOOR_BYTES}\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607 - found in PATH


def fill_disk(disk: Path, left_bytes: int) -> Path:
    """Fill the disk with another file, except for `left_bytes`."""
    path = disk / "filler"
    free = os.statvfs(disk)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left_bytes)
    return path


class Sender:
    """Posts one trace after another and records the responses."""

    def __init__(self, running: ReceiverProcess) -> None:
        self.running = running
        self.acknowledged: list[int] = []
        self.answers: Counter[int] = Counter()
        self.refusals: list[bytes] = []

    def post(self) -> int:
        """Send the next trace; a refused trace is not sent again."""
        number = sum(self.answers.values()) + 1
        reply = self.running.post(trace_body(number))
        self.answers[reply.status] += 1
        if reply.status == 200:
            self.acknowledged.append(number)
        else:
            self.refusals.append(reply.body)
        return reply.status


def readiness(running: ReceiverProcess) -> str:
    return running._get(str(running.state()["admin"]), "/readyz?verbose").body.decode()  # noqa: SLF001


@pytest.mark.fault(
    "one small disk for the journal and the embedded engine fills up; the store process is killed"
)
@pytest.mark.timeout(240)
def test_engine_stops_before_the_journal_on_a_full_disk_and_resumes_when_there_is_space(
    small_disk: Path,
) -> None:
    with ReceiverProcess(small_disk, config=CONFIG) as running:
        sender = Sender(running)
        sender.post()
        wait_for_condition(lambda: not running.backlog(), "the first trace is not stored")
        filler = fill_disk(small_disk, LEFT_BYTES)
        sender.post()
        wait_for_condition(lambda: "(243)" in readiness(running), "the engine does not stop")
        sender.post()
        assert sender.refusals == []

        running.kill(pid_of(running, "store"))
        wait_for_condition(
            lambda: any(sender.post() == 503 for _ in range(20)), "the journal does not reach its size limit"
        )
        wait_for_condition(lambda: "(243)" in readiness(running), "the engine does not stop again")
        filler.unlink()
        wait_for_condition(lambda: not running.backlog(), "the journal does not become empty")
        rows = running.spans_once_stored(len(sender.acknowledged) * SPANS_PER_REQUEST)

    assert set(sender.answers) == {200, 503}
    assert Counter(row["TraceId"] for row in rows) == {
        f"{number:032x}": SPANS_PER_REQUEST for number in sender.acknowledged
    }
