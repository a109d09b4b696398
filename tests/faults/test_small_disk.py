"""One small disk under the journal and the embedded engine: the engine stops first, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Running
from tests.e2e.test_kill import SPANS_PER_REQUEST, pid_of, trace_body
from tests.faults.site import await_that

MIB = 1 << 20
DISK_BYTES = 256 * MIB
JOURNAL_BYTES = MIB // 4
FLOOR_BYTES = 16 * MIB
LEFT_BYTES = FLOOR_BYTES + JOURNAL_BYTES // 2
"""Less than the engine wants to see free, more than the journal does."""

CONFIG = f"[journal]\nbytes_max = {JOURNAL_BYTES}\nsegment_bytes_max = 16384\ndisk_free_min = {FLOOR_BYTES}\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]  # a disk of our own
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607 - wherever it lies


def fill(disk: Path, left_bytes: int) -> Path:
    """Let somebody else take all but so much."""
    path = disk / "somebody-elses"
    free = os.statvfs(disk)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left_bytes)
    return path


class Sender:
    """Posts one trace after the other and knows what became of them."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.acknowledged: list[int] = []
        self.answers: Counter[int] = Counter()

    def post(self) -> int:
        """Send the next; one that was refused is not sent again."""
        number = sum(self.answers.values()) + 1
        status = self.running.post(trace_body(number)).status
        self.answers[status] += 1
        if status == 200:
            self.acknowledged.append(number)
        return status


def trouble(running: Running) -> str:
    return running._get(str(running.state()["admin"]), "/readyz?verbose").body.decode()  # noqa: SLF001


@pytest.mark.fault(
    "one small disk shared by journal and embedded engine fills up; the store process is killed"
)
@pytest.mark.timeout(240)
def test_on_a_full_disk_the_engine_stops_before_the_journal_and_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    with Running(small_disk, config=CONFIG) as running:
        sender = Sender(running)
        sender.post()
        await_that(lambda: not running.backlog(), "nothing is stored")
        others = fill(small_disk, LEFT_BYTES)
        await_that(lambda: sender.post() and "(243)" in trouble(running), "the engine does not stop")
        assert set(sender.answers) == {200}

        running.kill(pid_of(running, "store"))
        await_that(
            lambda: any(sender.post() == 503 for _ in range(20)), "the journal does not reach its ceiling"
        )
        await_that(lambda: "(243)" in trouble(running), "the engine does not stop again")
        others.unlink()
        await_that(lambda: not running.backlog(), "the journal does not run empty")
        rows = running.spans_once_stored(len(sender.acknowledged) * SPANS_PER_REQUEST)

    assert set(sender.answers) == {200, 503}
    assert Counter(row["TraceId"] for row in rows) == {
        f"{number:032x}": SPANS_PER_REQUEST for number in sender.acknowledged
    }
