"""Power loss at every moment of commits and hand-overs: what was not synced goes, in the worst of ways.

A recording, not a guess: strace sees a real process take deliveries in and hand them over, and its calls are
played on a disk that forgets. After each call the machine dies, and the next receiver starts on what is left.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.aftermath import Said, assert_promises_are_kept
from tests.crash.recording import DATA, Call, lay_out, played, record
from tests.support.memory_disk import MemoryDisk

STRACE = shutil.which("strace")
SEEDS = range(int(os.environ.get("TRACE_DRAIN_TEST_POWER_SEEDS", "2")))
"""How often chance decides what is kept, at each moment."""

Loss = Callable[[MemoryDisk], None]
Calls = list[Call]

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed; it records the calls")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    return recorded(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def refused_once(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """A sync that fails: the kernel then calls lost pages clean."""
    return recorded(tmp_path_factory.mktemp("refused"), "fdatasync:error=EIO:when=3")


def recorded(directory: Path, *injected: str) -> list[Call]:
    assert STRACE is not None
    data = directory / "data"
    data.mkdir()
    return record(STRACE, "tests.crash.hand_over", data, directory / "strace", *injected)


def nothing_is_lost(disk: MemoryDisk) -> None:
    disk.kill()


def everything_unsynced_is_lost(disk: MemoryDisk) -> None:
    disk.cut_power(lambda _waiting: 0)


def by_chance(seed: int, moment: int) -> Loss:
    drawn = random.Random(f"{seed} {moment}")
    share = drawn.random()
    return lambda disk: disk.scatter(lambda: drawn.random() < share)


def survive(calls: list[Call], directory: Path, lose: Callable[[int], Loss]) -> int:
    """Die after each call, go on from there. How many different ends there were."""
    seen: set[tuple[object, ...]] = set()
    for moment in range(1, len(calls) + 1):
        player = played(calls[:moment])
        lose(moment)(player.disk)
        said = player.said.decode()
        end = (said, *contents(player.disk, DATA))
        if end not in seen:
            seen.add(end)
            left = directory / str(moment)
            lay_out(player.disk, DATA, left)
            assert_promises_are_kept(left, Said.read(said.splitlines()))
            shutil.rmtree(left)
    return len(seen)


def contents(disk: MemoryDisk, directory: Path) -> list[object]:
    """Everything that lies there, to be compared."""
    found: list[object] = []
    for name in disk.names(directory):
        path = directory / name
        inside = contents(disk, path) if disk.is_directory(path) else disk.read(path)
        found.append((name, tuple(inside) if isinstance(inside, list) else inside))
    return found


@pytest.mark.fault("kill -9 after every call of commits and hand-overs")
def test_a_process_that_dies_after_any_call_leaves_what_it_promised(
    undisturbed: Calls, quick_dir: Path
) -> None:
    assert survive(undisturbed, quick_dir, lambda _moment: nothing_is_lost) > 100


@pytest.mark.fault("power loss after every call: everything that was not synced is gone")
def test_what_was_promised_was_synced(undisturbed: Calls, quick_dir: Path) -> None:
    assert survive(undisturbed, quick_dir, lambda _moment: everything_unsynced_is_lost) > 50


@pytest.mark.fault("power loss after every call: any part of what was not synced is kept, writes torn")
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_else_is_kept_harms_nothing(undisturbed: Calls, quick_dir: Path, seed: int) -> None:
    assert survive(undisturbed, quick_dir, lambda moment: by_chance(seed, moment)) > 100


@pytest.mark.fault("power loss after every call, one sync having failed before")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sync_that_failed_promised_nothing(refused_once: Calls, quick_dir: Path, seed: int) -> None:
    assert survive(refused_once, quick_dir, lambda moment: by_chance(seed, moment)) > 100
