"""A whole receiver on a disk that is full, read-only, slow, failing, or removed while it runs.

During the fault the receiver answers only 200, or 503 with Retry-After. Afterwards it recovers by itself, and
every acknowledged delivery is stored once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.faults.small_disk import CONFIG, DISK_BYTES, SmallDiskReceiver, mount, unmount
from tests.support.server_process import Server
from tests.support.strace import needs_strace

POSTS = 5
KIB = 1024

pytestmark = [pytest.mark.timeout(400), needs_strace]


@contextmanager
def small_disk_at(path: Path) -> Iterator[None]:
    path.mkdir()
    if not mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)):
        pytest.skip("mounting a small disk is not permitted here; it needs root")
    try:
        yield
    finally:
        unmount(path)


@pytest.fixture(scope="module")
def module_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDiskReceiver]:
    data = tmp_path_factory.mktemp("receiver")
    with small_disk_at(data / "journal"), ReceiverProcess(data, config=CONFIG) as running:
        yield SmallDiskReceiver(running, data / "journal")


@pytest.fixture
def receiver(module_receiver: SmallDiskReceiver) -> Iterator[SmallDiskReceiver]:
    """The receiver, healthy before the fault; afterwards every acknowledged delivery must be stored once."""
    module_receiver.post_until(200)
    module_receiver.running.wait_until_stored()
    yield module_receiver
    module_receiver.post_until(200)
    stored = module_receiver.spans_by_trace()
    assert module_receiver.acknowledged <= set(stored)
    assert set(stored.values()) == {1}


@pytest.mark.fault("a tmpfs of 64 MB that fills up and is freed again")
def test_full_disk_is_answered_503_until_there_is_space_again(receiver: SmallDiskReceiver) -> None:
    with receiver.filled(left_bytes=400 * KIB):
        receiver.post_until(503, padding_bytes=100 * KIB)
        assert {receiver.post(padding_bytes=600 * KIB) for _ in range(POSTS)} == {503}


@pytest.mark.fault("a disk without a single free byte")
def test_disk_without_a_free_byte_accepts_no_delivery(receiver: SmallDiskReceiver) -> None:
    with receiver.filled(left_bytes=0):
        receiver.post_until(503, padding_bytes=8 * KIB)


@pytest.mark.fault("the file system becomes read-only")
def test_read_only_disk_is_answered_503_until_it_is_writable_again(receiver: SmallDiskReceiver) -> None:
    with receiver.read_only():
        receiver.post_until(503)
        assert {receiver.post() for _ in range(POSTS)} == {503}


@pytest.mark.fault("a slow disk: fdatasync takes longer than the answer deadline")
def test_slow_disk_is_answered_503_by_the_answer_deadline(
    receiver: SmallDiskReceiver, tmp_path: Path
) -> None:
    with receiver.injected("fdatasync", "delay_enter=4s", tmp_path / "strace"):
        assert [receiver.post() for _ in range(2)] == [503, 503]


@pytest.mark.fault("fsync and fdatasync fail permanently")
def test_nothing_is_acknowledged_while_syncs_fail_and_refused_deliveries_are_never_stored(
    receiver: SmallDiskReceiver, tmp_path: Path
) -> None:
    before = set(receiver.issued)
    with receiver.injected("fdatasync,fsync", "error=EIO", tmp_path / "strace"):
        assert {receiver.post() for _ in range(POSTS)} == {503}
        refused = receiver.issued - before

    receiver.post_until(200)
    assert not refused & set(receiver.spans_by_trace())


@pytest.mark.fault("a single sync fails")
def test_one_failed_sync_costs_one_answer(receiver: SmallDiskReceiver, tmp_path: Path) -> None:
    with receiver.injected("fdatasync", "error=EIO:when=1", tmp_path / "strace"):
        assert [receiver.post() for _ in range(POSTS)] == [503, *[200] * (POSTS - 1)]


@pytest.mark.fault("no file descriptor is left for a new segment")
def test_nothing_is_acknowledged_without_free_descriptors(
    receiver: SmallDiskReceiver, tmp_path: Path
) -> None:
    with receiver.injected("openat", "error=EMFILE", tmp_path / "strace"):
        assert {receiver.post() for _ in range(POSTS)} == {503}


@pytest.mark.fault(
    "a disk of 64 MB for everything, filled by the journal itself while the store is unavailable"
)
def test_journal_that_filled_its_disk_is_still_drained(tmp_path: Path, server: Server) -> None:
    data = tmp_path / "data"
    with (
        small_disk_at(data),
        ReceiverProcess(data, "--store", f"{server.url}_full", config=CONFIG) as running,
    ):
        receiver = SmallDiskReceiver(running, data)
        receiver.post_until(200)
        running.wait_until_stored()
        server.inject_fault("reset", times=1_000_000)
        receiver.post_until(503, padding_bytes=2_000 * KIB, every_s=0.0)
        receiver.post_until(503, padding_bytes=8 * KIB, every_s=0.0)
        server.inject_fault("reset", times=0)

        receiver.post_until(200)
        stored = receiver.spans_by_trace()

    assert receiver.acknowledged <= set(stored)
    assert set(stored.values()) == {1}
    assert len(receiver.acknowledged) > 20


def delete(directory: Path) -> None:
    shutil.rmtree(directory)


def replace(directory: Path) -> None:
    """Replace the directory by another of the same name, as a restored backup would."""
    old = directory.with_name(f"{directory.name}.old")
    directory.rename(old)
    directory.mkdir()
    shutil.rmtree(old)
    (directory / "start").touch()


@pytest.mark.fault("the journal directory is deleted, or replaced, while the receiver runs")
@pytest.mark.parametrize("remove", [delete, replace])
def test_nothing_is_acknowledged_into_a_removed_journal_and_a_new_intake_makes_another(
    receiver: SmallDiskReceiver, remove: Callable[[Path], None]
) -> None:
    pid = pid_of(receiver.running, "intake")
    for start in receiver.journal.iterdir():
        remove(start)

    receiver.post()

    receiver.running.wait_until(
        lambda: pid_of(receiver.running, "intake") != pid, "the intake is not replaced"
    )
    receiver.post_until(200)
