"""Answers that are read more slowly than the store gives them, over the spool and the API."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from receiver.api import spool as module
from receiver.api.spool import FILE_BYTES_MAX, MEMORY_BYTES_MAX, ClientTooSlow, Spool, SpoolSpace
from receiver.api.streaming import stream_from_thread
from receiver.errors import StoreTrouble
from receiver.query.limits import SECONDS_MAX, within_time

PIECE = bytes(64 * 1024)
WAIT_S = 20.0


def pieces(count: int) -> list[bytes]:
    """Return distinct pieces of 64 KiB."""
    return [number.to_bytes(4, "big") + PIECE[4:] for number in range(count)]


@pytest.fixture
def space(tmp_path: Path) -> SpoolSpace:
    return SpoolSpace(tmp_path, 4 * FILE_BYTES_MAX, lambda: 0)


def test_pieces_come_back_in_order_from_memory_and_disk(space: SpoolSpace) -> None:
    given = pieces(2 * FILE_BYTES_MAX // len(PIECE))
    with Spool(space) as spool:
        for piece in given:
            assert spool.append(piece)
        assert space.used_bytes >= 2 * FILE_BYTES_MAX - MEMORY_BYTES_MAX

        assert [spool.take() for _ in given] == given
        assert spool.take() is None
        assert space.used_bytes == 0


def test_order_holds_while_appending_and_taking_alternate(space: SpoolSpace) -> None:
    given = pieces(100)
    taken: list[bytes | None] = []
    with Spool(space) as spool:
        for number, piece in enumerate(given):
            spool.append(piece)
            if number % 3 == 2:
                taken.append(spool.take())
        while (piece_taken := spool.take()) is not None:
            taken.append(piece_taken)

    assert taken == given


def test_spool_that_is_closed_frees_its_disk_and_leaves_no_file(space: SpoolSpace, tmp_path: Path) -> None:
    with Spool(space) as spool:
        for piece in pieces(20):
            spool.append(piece)
        assert space.used_bytes == FILE_BYTES_MAX
        assert list(tmp_path.iterdir()) == []

    assert space.used_bytes == 0
    assert not spool.append(PIECE)


@pytest.mark.parametrize("short", ["limit", "disk"])
def test_statement_fails_when_the_disk_is_short_and_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.1)
    space = SpoolSpace(
        tmp_path, 0 if short == "limit" else 1 << 40, lambda: 0 if short == "limit" else 1 << 60
    )
    with Spool(space) as spool:
        for piece in pieces(MEMORY_BYTES_MAX // len(PIECE)):
            spool.append(piece)

        with pytest.raises(ClientTooSlow):
            spool.append(PIECE)


def test_statement_waits_for_the_reader_when_the_disk_is_short(tmp_path: Path) -> None:
    given = pieces(50)
    taken: list[bytes] = []
    with Spool(SpoolSpace(tmp_path, 0, lambda: 0)) as spool, ThreadPoolExecutor(1) as pool:
        appending = pool.submit(lambda: [spool.append(piece) for piece in given])
        while len(taken) < len(given):
            if (piece := spool.take()) is not None:
                taken.append(piece)

    assert taken == given
    assert all(appending.result(WAIT_S))


async def test_readers_that_do_not_read_hold_no_thread_of_the_store(space: SpoolSpace) -> None:
    given = pieces(100)
    with ThreadPoolExecutor(1) as pool:
        async with stream_from_thread(pool, space, lambda: iter(given)) as first:
            assert await anext(first) == given[0]

            async with (
                asyncio.timeout(WAIT_S),
                stream_from_thread(pool, space, lambda: iter(given)) as second,
            ):
                assert [piece async for piece in second] == given

            assert [piece async for piece in first] == given[1:]


async def test_failure_is_raised_after_the_pieces_before_it(space: SpoolSpace) -> None:
    def failing() -> Iterator[bytes]:
        yield from pieces(20)
        raise StoreTrouble("gone")

    with ThreadPoolExecutor(1) as pool:
        async with stream_from_thread(pool, space, failing) as answer:
            assert [await anext(answer) for _ in range(20)] == pieces(20)
            with pytest.raises(StoreTrouble):
                await anext(answer)


async def test_reader_that_leaves_ends_a_statement_that_waits_for_it(tmp_path: Path) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield PIECE
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        async with stream_from_thread(pool, SpoolSpace(tmp_path, 0, lambda: 0), endless) as answer:
            assert await anext(answer) == PIECE
        assert await asyncio.to_thread(ended.wait, WAIT_S)


def test_open_descriptors_return_to_what_they_were(space: SpoolSpace) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not paths
    with Spool(space) as spool:
        for piece in pieces(20):
            spool.append(piece)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_answer_that_ends_after_the_time_limit_is_an_error() -> None:
    now_s = [0.0]

    def slow() -> Iterator[bytes]:
        yield b"a"
        now_s[0] += SECONDS_MAX
        yield b"b"

    answer = within_time(slow(), lambda: now_s[0])

    assert [next(answer), next(answer)] == [b"a", b"b"]
    with pytest.raises(StoreTrouble, match="rows may be missing"):
        next(answer)


def test_answer_that_ends_before_the_time_limit_is_whole() -> None:
    assert list(within_time(iter([b"a"]), lambda: 0.0)) == [b"a"]
