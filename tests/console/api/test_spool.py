"""Tests of the spool: answers that clients read more slowly than the store returns them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from receiver.console.api import spool as module
from receiver.console.api.spool import FILE_BYTES_MAX, MEMORY_BYTES_MAX, ClientTooSlow, Spool, SpoolSpace
from receiver.console.api.streaming import stream_from_thread
from receiver.console.queries.limits import within_time
from receiver.engine.sql_text import SECONDS_MAX
from receiver.errors import StoreTrouble
from tests.support.cases import each_case

PIECE = bytes(64 * 1024)
WAIT_S = 20.0


streamed = partial(stream_from_thread, cancel=lambda: None, is_abandoned=lambda: False)
"""Queries of a client that stays connected."""


def pieces(count: int) -> list[bytes]:
    """Return distinct pieces of 64 KiB."""
    return [number.to_bytes(4, "big") + PIECE[4:] for number in range(count)]


@pytest.fixture
def space(tmp_path: Path) -> SpoolSpace:
    return SpoolSpace(tmp_path, 4 * FILE_BYTES_MAX, lambda: 0)


def test_pieces_are_returned_in_order_from_memory_and_disk(space: SpoolSpace) -> None:
    sent = pieces(2 * FILE_BYTES_MAX // len(PIECE))
    with Spool(space) as spool:
        for piece in sent:
            assert spool.append(piece)
        assert space.used_bytes >= 2 * FILE_BYTES_MAX - MEMORY_BYTES_MAX

        assert [spool.take() for _ in sent] == sent
        assert spool.take() is None
        assert space.used_bytes == 0


def test_order_is_preserved_while_append_and_take_alternate(space: SpoolSpace) -> None:
    sent = pieces(100)
    taken: list[bytes | None] = []
    with Spool(space) as spool:
        for number, piece in enumerate(sent):
            spool.append(piece)
            if number % 3 == 2:
                taken.append(spool.take())
        while (piece_taken := spool.take()) is not None:
            taken.append(piece_taken)

    assert taken == sent


def test_closed_spool_frees_its_disk_space(space: SpoolSpace, tmp_path: Path) -> None:
    with Spool(space) as spool:
        for piece in pieces(20):
            spool.append(piece)
        assert space.used_bytes == FILE_BYTES_MAX
        assert list(tmp_path.iterdir()) == []

    assert space.used_bytes == 0
    assert not spool.append(PIECE)


@each_case("missing_space", ["limit", "disk"])
def test_statement_fails_if_no_disk_space_is_left_and_the_client_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing_space: str
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.1)
    space = SpoolSpace(
        tmp_path,
        0 if missing_space == "limit" else 1 << 40,
        lambda: 0 if missing_space == "limit" else 1 << 60,
    )
    with Spool(space) as spool:
        for piece in pieces(MEMORY_BYTES_MAX // len(PIECE)):
            spool.append(piece)

        with pytest.raises(ClientTooSlow):
            spool.append(PIECE)


def test_statement_waits_for_the_client_if_no_disk_space_is_left(tmp_path: Path) -> None:
    sent = pieces(50)
    taken: list[bytes] = []
    with Spool(SpoolSpace(tmp_path, 0, lambda: 0)) as spool, ThreadPoolExecutor(1) as pool:
        appending = pool.submit(lambda: [spool.append(piece) for piece in sent])
        while len(taken) < len(sent):
            if (piece := spool.take()) is not None:
                taken.append(piece)

    assert taken == sent
    assert all(appending.result(WAIT_S))


async def test_slow_client_does_not_occupy_a_thread_of_the_store(space: SpoolSpace) -> None:
    sent = pieces(100)
    with ThreadPoolExecutor(1) as pool:
        async with streamed(pool, space, lambda: iter(sent)) as first:
            assert await anext(first) == sent[0]

            async with asyncio.timeout(WAIT_S), streamed(pool, space, lambda: iter(sent)) as second:
                assert [piece async for piece in second] == sent

            assert [piece async for piece in first] == sent[1:]


async def test_failure_is_raised_after_the_pieces_before_it(space: SpoolSpace) -> None:
    def failing() -> Iterator[bytes]:
        yield from pieces(20)
        raise StoreTrouble("gone")

    with ThreadPoolExecutor(1) as pool:
        async with streamed(pool, space, failing) as answer:
            assert [await anext(answer) for _ in range(20)] == pieces(20)
            with pytest.raises(StoreTrouble):
                await anext(answer)


async def test_disconnected_client_ends_a_waiting_statement(tmp_path: Path) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield PIECE
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        async with streamed(pool, SpoolSpace(tmp_path, 0, lambda: 0), endless) as answer:
            assert await anext(answer) == PIECE
        assert await asyncio.to_thread(ended.wait, WAIT_S)


def test_spool_leaks_no_descriptors(space: SpoolSpace) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not paths
    with Spool(space) as spool:
        for piece in pieces(20):
            spool.append(piece)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_answer_is_an_error_only_if_it_ends_after_the_time_limit() -> None:
    assert list(within_time(iter([b"a"]), lambda: 0.0)) == [b"a"]
    now_s = [0.0]

    def slow() -> Iterator[bytes]:
        yield b"a"
        now_s[0] += SECONDS_MAX
        yield b"b"

    answer = within_time(slow(), lambda: now_s[0])

    assert [next(answer), next(answer)] == [b"a", b"b"]
    with pytest.raises(StoreTrouble, match="rows may be missing"):
        next(answer)
