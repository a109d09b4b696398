"""A whole receiver on a disk that is full, read-only, slow, failing, or taken away under it.

While it lasts: 200 or 503 with Retry-After, nothing else. Then it recovers by itself, and everything that was
answered with 200 is stored, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.running import Running
from tests.faults.small_disk import CONFIG, DISK_BYTES, Site, mount, unmount
from tests.support.server_process import Server

POSTS = 5
KIB = 1024

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed; it injects the faults"
    ),
]


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
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("receiver")
    with small_disk_at(data / "journal"), Running(data, config=CONFIG) as running:
        yield Site(running, data / "journal")


@pytest.fixture
def site(small: Site) -> Iterator[Site]:
    """It is well before the fault; after it, everything acknowledged is there, once."""
    small.post_until(200)
    small.rest()
    yield small
    small.post_until(200)
    stored = small.spans_by_trace()
    assert small.acknowledged <= set(stored)
    assert set(stored.values()) == {1}


@pytest.mark.fault("a tmpfs of 64 MB that fills up and is freed again")
def test_a_full_disk_means_wait_until_there_is_space_again(site: Site) -> None:
    with site.filled(left_bytes=400 * KIB):
        site.post_until(503, padding_bytes=100 * KIB)
        assert {site.post(padding_bytes=600 * KIB) for _ in range(POSTS)} == {503}


@pytest.mark.fault("a disk without a single byte left")
def test_a_disk_without_a_byte_left_takes_nothing(site: Site) -> None:
    with site.filled(left_bytes=0):
        site.post_until(503, padding_bytes=8 * KIB)


@pytest.mark.fault("the file system becomes read-only")
def test_a_read_only_disk_means_wait_until_it_is_writable_again(site: Site) -> None:
    with site.read_only() as is_so:
        if not is_so:
            pytest.skip("a read-only bind mount is not permitted here")
        site.post_until(503)
        assert {site.post() for _ in range(POSTS)} == {503}


@pytest.mark.fault("a slow disk: fdatasync takes longer than a sender may wait")
def test_a_slow_disk_means_wait_and_not_longer_than_the_deadline(site: Site, tmp_path: Path) -> None:
    with site.injected("fdatasync:delay_enter=4s", tmp_path / "strace") as is_so:
        if not is_so:
            pytest.skip("strace may not attach here")
        assert [site.post() for _ in range(2)] == [503, 503]


@pytest.mark.fault("fsync and fdatasync fail once and for good")
def test_while_no_sync_succeeds_nothing_is_promised_and_nothing_refused_comes_back(
    site: Site, tmp_path: Path
) -> None:
    before = set(site.issued)
    with site.injected("fdatasync,fsync:error=EIO", tmp_path / "strace") as is_so:
        if not is_so:
            pytest.skip("strace may not attach here")
        assert {site.post() for _ in range(POSTS)} == {503}
        refused = site.issued - before

    site.post_until(200)
    assert not refused & set(site.spans_by_trace())


@pytest.mark.fault("one sync fails")
def test_one_sync_that_fails_costs_one_answer(site: Site, tmp_path: Path) -> None:
    with site.injected("fdatasync:error=EIO:when=1", tmp_path / "strace") as is_so:
        if not is_so:
            pytest.skip("strace may not attach here")
        assert [site.post() for _ in range(POSTS)] == [503, *[200] * (POSTS - 1)]


@pytest.mark.fault("no descriptor is left for a new segment")
def test_without_descriptors_nothing_is_promised(site: Site, tmp_path: Path) -> None:
    with site.injected("openat:error=EMFILE", tmp_path / "strace") as is_so:
        if not is_so:
            pytest.skip("strace may not attach here")
        assert {site.post() for _ in range(POSTS)} == {503}


@pytest.mark.fault("a disk of 64 MB for everything, filled by the journal itself while the store is away")
def test_a_journal_that_filled_its_disk_is_handed_over_all_the_same(tmp_path: Path, server: Server) -> None:
    data = tmp_path / "data"
    with (
        small_disk_at(data),
        Running(data, "--store", f"{server.url}_full", config=CONFIG) as running,
    ):
        site = Site(running, data)
        site.post_until(200)
        site.rest()
        server.meet("reset", times=1_000_000)
        site.post_until(503, padding_bytes=2_000 * KIB, every_s=0.0)
        site.post_until(503, padding_bytes=8 * KIB, every_s=0.0)
        server.meet("reset", times=0)

        site.post_until(200)
        stored = site.spans_by_trace()

    assert site.acknowledged <= set(stored)
    assert set(stored.values()) == {1}
    assert len(site.acknowledged) > 20


def delete(directory: Path) -> None:
    shutil.rmtree(directory)


def replace(directory: Path) -> None:
    """By another one of the same name, as a restored backup would."""
    away = directory.with_name(f"{directory.name}.away")
    directory.rename(away)
    directory.mkdir()
    shutil.rmtree(away)
    (directory / "start").touch()


@pytest.mark.fault("the journal directory is deleted, or replaced, under the running receiver")
@pytest.mark.parametrize("take_away", [delete, replace])
def test_a_journal_taken_away_promises_nothing_until_another_is_made(
    site: Site, take_away: Callable[[Path], None]
) -> None:
    pid = site.pid_of_intake()
    for start in site.journal.iterdir():
        take_away(start)

    site.post()

    site.wait_for_another_intake(pid)
    site.post_until(200)


@pytest.mark.fault("a second receiver on the same directory")
def test_a_second_receiver_says_so_and_harms_nothing(site: Site) -> None:
    command = [
        sys.executable,
        "-m",
        "receiver.cli",
        "serve",
        "--data",
        str(site.running.data),
        *site.running.flags,
    ]
    free = [word for flag in ("--listen", "--admin-listen", "--api-listen") for word in (flag, "127.0.0.1:0")]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **os.environ}

    second = subprocess.run(
        [*command, *free], capture_output=True, text=True, check=False, timeout=60, env=environment
    )

    assert second.returncode != 0
    assert "another receiver uses it" in second.stderr
    assert site.post() == 200
