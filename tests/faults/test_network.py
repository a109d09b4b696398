"""The network: cut anywhere, half open, slow, or far too much of it."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.running import Running
from tests.faults.bodies import trace_body
from tests.faults.variant import IS_LONG, sampled
from tests.faults.wire import Wire, post, post_head

CONNECTIONS_MAX = 64
CONFIG = f"""
intakes = 2
[limits]
connections_max = {CONNECTIONS_MAX}
header_timeout_s = 2
body_grace_s = 2
answer_deadline_s = 5
"""
PATIENCE_S = 60
SPANS = 3
CUTS_SHORT = 24
SLOW_COUNT = 12


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data: Path = tmp_path_factory.mktemp("network")
    with Running(data, config=CONFIG) as running:
        yield running


def post_until_taken(address: tuple[str, int], body: bytes) -> None:
    """What a client does after a cut: the same again."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (status := post(address, body)) != 200:
        assert status in {0, 429, 503}
        assert time.monotonic() < deadline_s, "not taken"
        time.sleep(0.1)


def assert_stored_once(receiver: Running, traces: range) -> None:
    """Every one of these traces is in the store, whole, once."""
    wanted = {f"{trace:032x}" for trace in traces}
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = Counter(row["TraceId"] for row in receiver.spans() if row["TraceId"] in wanted)
        if found.keys() == wanted or time.monotonic() > deadline_s:
            break
        time.sleep(0.5)

    assert found == dict.fromkeys(wanted, SPANS)


def cut_request(address: tuple[str, int], request: bytes, sent_bytes: int) -> None:
    """Send so much, then be gone: by a reset, or for the odd ones by an ordinary end."""
    with suppress(OSError), Wire(address) as wire:
        wire.socket.sendall(request[:sent_bytes])
        if sent_bytes % 2 == 0:
            wire.reset()


def cut_answer(address: tuple[str, int], request: bytes, read_bytes: int) -> bool:
    """Send it all, read so much of the answer, then be gone. Whether there was so much to read."""
    with suppress(OSError), Wire(address) as wire:
        wire.socket.sendall(request)
        left_bytes = read_bytes
        while left_bytes and (piece := wire.socket.recv(left_bytes)):
            left_bytes -= len(piece)
        wire.reset()
        return not left_bytes
    return False


@pytest.mark.fault("the connection is cut after every byte of the request, by a reset or an orderly end")
@pytest.mark.timeout(900)
def test_a_request_cut_at_any_byte_is_stored_once_when_it_comes_again(receiver: Running) -> None:
    start_ns, first = time.time_ns(), 0x1000
    size_bytes = len(trace_body(first, start_ns)) + len(post_head(len(trace_body(first, start_ns))))
    cuts = sampled(range(size_bytes + 1), CUTS_SHORT)
    bodies = [trace_body(first + place, start_ns) for place in range(len(cuts))]
    for cut, body in zip(cuts, bodies, strict=True):
        cut_request(receiver.address, post_head(len(body)) + body, cut)
    for body in bodies:
        post_until_taken(receiver.address, body)

    assert_stored_once(receiver, range(first, first + len(cuts)))


@pytest.mark.fault("the connection is cut after every byte of the answer")
@pytest.mark.timeout(900)
def test_an_answer_cut_at_any_byte_means_the_delivery_comes_again_and_is_stored_once(
    receiver: Running,
) -> None:
    start_ns, first = time.time_ns(), 0x2000
    with Wire(receiver.address) as wire:
        body = trace_body(first, start_ns)
        wire.socket.sendall(post_head(len(body)) + body)
        size_bytes = len(wire.socket.recv(65_536))
    cuts = sampled(range(size_bytes + 1), CUTS_SHORT)
    bodies = [trace_body(first + place, start_ns) for place in range(len(cuts))]
    came = [
        cut_answer(receiver.address, post_head(len(body)) + body, cut)
        for cut, body in zip(cuts, bodies, strict=True)
    ]
    for body in bodies:
        post_until_taken(receiver.address, body)

    assert all(came)
    assert_stored_once(receiver, range(first, first + len(cuts)))


@pytest.mark.fault("twice the allowed connections are half open: silent in the head, in the body, after it")
@pytest.mark.timeout(180)
def test_half_open_connections_are_let_go_and_others_are_served(receiver: Running) -> None:
    body = trace_body(0x3000, time.time_ns())
    request = post_head(len(body)) + body
    silent_after = (0, 10, len(request) - len(body) // 2)
    with ExitStack() as held:
        opened = 0
        for place in range(4 * CONNECTIONS_MAX):
            with suppress(OSError):
                wire = held.enter_context(Wire(receiver.address))
                wire.socket.sendall(request[: silent_after[place % len(silent_after)]])
                opened += 1
        post_until_taken(receiver.address, body)

    assert opened > 2 * CONNECTIONS_MAX
    assert_stored_once(receiver, range(0x3000, 0x3001))


def dribble(address: tuple[str, int], request: bytes, ended: threading.Event) -> bool:
    """Send a byte now and then. Whether the receiver put an end to it."""
    with Wire(address) as wire:
        try:
            for byte in request:
                if ended.wait(0.25):
                    return False
                wire.socket.sendall(bytes([byte]))
        except OSError:
            return True
    return False


def never_read(address: tuple[str, int], request: bytes, ended: threading.Event) -> bool:
    """Ask again and again and take no answer. Whether the receiver put an end to it."""
    wire = Wire(address)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    with wire:
        wire.socket.settimeout(0.5)
        while not ended.is_set():
            try:
                wire.socket.sendall(request)
            except TimeoutError:
                continue
            except OSError:
                return True
    return False


@pytest.mark.fault(
    "senders that dribble their bodies, and readers that take no answer, beside one that is well"
)
@pytest.mark.timeout(180)
def test_slow_senders_and_readers_are_put_an_end_to_and_hold_up_nobody(receiver: Running) -> None:
    slow_body = trace_body(0x4000, time.time_ns(), text="x" * 4_000)
    slow = post_head(len(slow_body)) + slow_body
    asked = post_head(0, path="/nowhere")
    ended, statuses = threading.Event(), Counter[int]()
    readers = SLOW_COUNT if IS_LONG else 0  # it takes 20 s until one of them is given up
    with ThreadPoolExecutor(2 * SLOW_COUNT) as pool:
        running = [
            *(pool.submit(dribble, receiver.address, slow, ended) for _ in range(SLOW_COUNT)),
            *(pool.submit(never_read, receiver.address, asked, ended) for _ in range(readers)),
        ]
        count = 400 if IS_LONG else 40
        for place in range(count):
            statuses[post(receiver.address, trace_body(0x5000 + place, time.time_ns()))] += 1
        deadline_s = time.monotonic() + PATIENCE_S
        while not all(one.done() for one in running) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        ended.set()
        put_an_end_to = [one.result() for one in running]

    assert statuses == {200: count}
    assert all(put_an_end_to)
    assert_stored_once(receiver, range(0x5000, 0x5000 + count))
