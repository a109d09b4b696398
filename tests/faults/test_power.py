"""Power loss after every file operation of commits and drains: unsynced data is lost, in all possible ways.

strace records the calls of a real process that commits deliveries and drains them. They are replayed on a
simulated disk that loses unsynced data. After each call the power fails, and the next receiver recovers.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.recording import CALLS, CALLS_OF_DIRECTORIES, DATA, Call, lay_out, play_all, record
from tests.faults.recovery import ChildOutput, assert_promises_are_kept
from tests.support.memory_disk import MemoryDisk
from tests.support.strace import needs_strace

SEEDS = range(int(os.environ.get("TRACE_DRAIN_TEST_POWER_SEEDS", "2")))
"""How often a random loss is simulated after each call."""

Loss = Callable[[MemoryDisk], None]
Calls = list[Call]

pytestmark = needs_strace


@pytest.fixture(scope="module")
def recorded_calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    return record_calls(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def recorded_with_failed_sync(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """A recording in which one sync fails: the kernel then marks lost pages as clean."""
    return record_calls(tmp_path_factory.mktemp("refused"), "fdatasync:error=EIO:when=3")


def record_calls(directory: Path, *injected: str) -> list[Call]:
    data = directory / "data"
    data.mkdir()
    recorded = record("tests.faults.commit_and_drain", data, directory / "strace", *injected)
    return [call for call, _ in recorded]


def process_killed(disk: MemoryDisk) -> None:
    disk.kill()


def unsynced_lost(disk: MemoryDisk) -> None:
    disk.cut_power(lambda _waiting: 0)


def random_loss(seed: int, moment: int) -> Loss:
    random_ = random.Random(f"{seed} {moment}")
    share = random_.random()
    return lambda disk: disk.scatter(lambda: random_.random() < share)


def recover_after_each_call(calls: list[Call], directory: Path, lose: Callable[[int], Loss]) -> int:
    """Fail after each call and recover. Returns how many different disk states occurred."""
    outcomes: set[tuple[object, ...]] = set()
    for moment in range(1, len(calls) + 1):
        player = play_all(calls[:moment])
        lose(moment)(player.disk)
        output = player.output.decode()
        outcome = (output, *contents(player.disk, DATA))
        if outcome not in outcomes:
            outcomes.add(outcome)
            remaining = directory / str(moment)
            lay_out(player.disk, DATA, remaining)
            assert_promises_are_kept(remaining, ChildOutput.parse(output.splitlines()))
            shutil.rmtree(remaining)
    return len(outcomes)


def contents(disk: MemoryDisk, directory: Path) -> list[object]:
    """Return names and contents of a directory, for comparison."""
    entries: list[object] = []
    for name in disk.names(directory):
        path = directory / name
        content = contents(disk, path) if disk.is_directory(path) else disk.read(path)
        entries.append((name, tuple(content) if isinstance(content, list) else content))
    return entries


def test_recording_has_every_kind_of_call(recorded_calls: Calls) -> None:
    assert {call.name for call in recorded_calls} == {*CALLS, *CALLS_OF_DIRECTORIES}


@pytest.mark.fault("kill -9 after every file operation of commits and drains")
def test_killed_process_leaves_what_it_acknowledged(recorded_calls: Calls, quick_dir: Path) -> None:
    assert recover_after_each_call(recorded_calls, quick_dir, lambda _moment: process_killed) > 100


@pytest.mark.fault("power loss after every file operation: everything unsynced is lost")
def test_acknowledged_deliveries_survive_the_loss_of_everything_unsynced(
    recorded_calls: Calls, quick_dir: Path
) -> None:
    assert recover_after_each_call(recorded_calls, quick_dir, lambda _moment: unsynced_lost) > 50


@pytest.mark.fault(
    "power loss after every file operation: a random part of what was unsynced remains, writes torn"
)
@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_deliveries_survive_a_random_loss_of_unsynced_data(
    recorded_calls: Calls, quick_dir: Path, seed: int
) -> None:
    assert recover_after_each_call(recorded_calls, quick_dir, lambda moment: random_loss(seed, moment)) > 100


@pytest.mark.fault("power loss after every file operation, after one sync failed")
@pytest.mark.parametrize("seed", SEEDS)
def test_delivery_whose_sync_failed_is_not_acknowledged(
    recorded_with_failed_sync: Calls, quick_dir: Path, seed: int
) -> None:
    outcomes = recover_after_each_call(
        recorded_with_failed_sync, quick_dir, lambda moment: random_loss(seed, moment)
    )
    assert outcomes > 100
