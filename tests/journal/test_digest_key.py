"""Tests of the digest key: created once, durable before use, shared, and its loss is reported."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from receiver import transcode
from receiver.durable.files import FILE_MODE
from receiver.journal.digest_key import KEY_BYTES, DigestKey, Key
from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.settings import Redelivery
from tests.support.memory_disk import MemoryDisk
from tests.support.redelivery import POLICY, Harness, delivery

DATA = Path("/data")


def load_key(data_dir: Path) -> Key:
    return DigestKey(data_dir).load()


def memory_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    disk.sync_directory(Path("/"))
    return disk


def test_key_is_random_and_stays_the_same(tmp_path: Path) -> None:
    other_dir = tmp_path / "other"
    other_dir.mkdir()

    key = load_key(tmp_path)

    assert load_key(tmp_path) == key
    assert load_key(other_dir) != key
    assert len(key.secret) == KEY_BYTES
    assert key.secret.hex() not in repr(key)
    assert (tmp_path / "digest.key").stat().st_mode & 0o777 == FILE_MODE


def test_processes_that_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    keys: list[Key] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        keys.append(load_key(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(keys) == 8
    assert set(keys) == {load_key(tmp_path)}


def test_key_that_was_returned_survives_a_power_cut() -> None:
    disk = memory_disk()
    key = DigestKey(DATA, disk).load()

    disk.cut_power()

    assert DigestKey(DATA, disk).load() == key


@pytest.mark.parametrize("call", ["create", "write", "sync", "sync_directory"])
def test_key_is_not_used_if_its_creation_failed(call: str) -> None:
    disk = memory_disk()
    disk.fail(call)
    key = DigestKey(DATA, disk)
    with pytest.raises(OSError, match=r"."):
        key.load()
    disk.heal()

    created = key.load()
    disk.cut_power()

    assert DigestKey(DATA, disk).load() == created
    assert not disk.descriptor_count


@pytest.mark.parametrize("damage", [b"", b"short", bytes(48)], ids=["empty", "short", "zeros"])
def test_damaged_key_is_replaced(tmp_path: Path, damage: bytes) -> None:
    key = load_key(tmp_path)
    (tmp_path / "digest.key").write_bytes(damage)

    replaced = load_key(tmp_path)

    assert replaced != key
    assert load_key(tmp_path) == replaced


def test_digest_depends_on_the_key() -> None:
    def digest(key: bytes) -> bytes:
        record = transcode.commit(POLICY, [delivery(1)], SegmentId(1, 1), key).record
        return transcode.scan(record).records[0].answers

    assert digest(bytes(32)) == digest(bytes(32))
    assert digest(bytes(32)) != digest(bytes([1]) * 32)
    with pytest.raises(transcode.CoreError, match="digest key has 31 bytes; expected 32"):
        digest(bytes(31))


def harness_with_stored_delivery(directory: Path) -> Harness:
    """Return a data directory in which one delivery was stored by a writer that has ended."""
    harness = Harness(directory)
    harness.add([1])
    harness.drain()
    assert harness.progress.window_trouble == ""
    harness.kill()
    return harness


@pytest.mark.fault("DATA/redelivery, its note or the digest key removed or replaced while no receiver runs")
@pytest.mark.parametrize(
    "removed",
    [
        ("redelivery",),
        ("redelivery", "ledger"),
        ("redelivery.begun",),
        ("digest.key",),
        ("redelivery", "ledger", "digest.key"),
    ],
    ids="+".join,
)
def test_window_that_is_removed_while_stopped_is_reported(tmp_path: Path, removed: tuple[str, ...]) -> None:
    harness = harness_with_stored_delivery(tmp_path)
    for name in removed:
        path = tmp_path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    harness.drain()
    trouble = harness.progress.window_trouble
    harness.kill()
    harness.add([1])
    harness.drain()

    assert "expected 86400 s (the log of earlier deliveries was damaged or missing" in trouble
    assert harness.progress.window_covered_s < harness.limits.window_s
    assert harness.progress.window_trouble == trouble


def test_window_started_with_another_key_is_reported_once(tmp_path: Path) -> None:
    harness = harness_with_stored_delivery(tmp_path)
    (tmp_path / "digest.key").unlink()
    harness.drain()
    harness.kill()
    window = harness.opened_window(harness.opened_ledger())
    harness.monotonic_s += harness.limits.window_s + 1
    window.tick()
    assert window.shortfall == ""
    window.close()

    assert harness.opened_window(harness.opened_ledger()).shortfall == ""


@pytest.mark.parametrize("name", ["digest.key", "redelivery.begun"])
def test_key_that_is_removed_from_a_running_receiver_is_restored(tmp_path: Path, name: str) -> None:
    harness = Harness(tmp_path)
    harness.add([1])
    harness.drain()
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()

    harness.drain()

    assert (tmp_path / name).read_bytes() == content
    assert harness.progress.alarms == 1
    harness.kill()
    harness.drain()
    assert harness.progress.window_trouble == ""


def test_data_directory_that_is_removed_from_a_running_receiver_is_created_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    window = Window(data / "redelivery", Redelivery(), lambda: 0.0)
    key = load_key(data)
    shutil.rmtree(data)

    assert window.restore_files()

    assert load_key(data) == key
    assert Window(data / "redelivery", Redelivery(), lambda: 0.0).shortfall == ""


def test_key_replaced_during_operation_is_restored_and_shortens_the_window(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.add([1])
    harness.drain()
    content = (tmp_path / "digest.key").read_bytes()
    (tmp_path / "digest.key").unlink()
    DigestKey(tmp_path).load()

    harness.drain()

    assert (tmp_path / "digest.key").read_bytes() == content
    assert harness.progress.alarms == 1
    assert "the digest key was replaced" in harness.progress.window_trouble
    harness.kill()
    harness.drain()
    assert harness.progress.window_trouble != ""
