"""Network faults: connections cut at any byte, half open, slow, or too many."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body
from tests.faults.load import assert_stored_once, deliver
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
CUTS_SHORT = 24
SLOW_COUNT = 12


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    data: Path = tmp_path_factory.mktemp("network")
    with ReceiverProcess(data, config=CONFIG) as running:
        yield running


def ids(first: int, count: int) -> set[str]:
    return {f"{trace:032x}" for trace in range(first, first + count)}


def send_partial_request(address: tuple[str, int], request: bytes, sent_bytes: int) -> None:
    """Send `sent_bytes` of the request, then close: with a reset if even, orderly if odd."""
    with suppress(OSError), Wire(address) as wire:
        wire.socket.sendall(request[:sent_bytes])
        if sent_bytes % 2 == 0:
            wire.reset()


def read_partial_answer(address: tuple[str, int], request: bytes, read_bytes: int) -> bool:
    """Send the request, read `read_bytes` of the answer, then reset. Returns whether that much arrived."""
    with suppress(OSError), Wire(address) as wire:
        wire.socket.sendall(request)
        left_bytes = read_bytes
        while left_bytes and (piece := wire.socket.recv(left_bytes)):
            left_bytes -= len(piece)
        wire.reset()
        return not left_bytes
    return False


@pytest.mark.fault("the connection is cut after every byte of the request, by a reset or an orderly close")
@pytest.mark.timeout(900)
def test_request_cut_at_any_byte_and_sent_again_is_stored_once(receiver: ReceiverProcess) -> None:
    first = 0x1000
    size_bytes = len(trace_body(first)) + len(post_head(len(trace_body(first))))
    cuts = sampled(range(size_bytes + 1), CUTS_SHORT)
    bodies = [trace_body(trace) for trace in range(first, first + len(cuts))]
    for cut, body in zip(cuts, bodies, strict=True):
        send_partial_request(receiver.address, post_head(len(body)) + body, cut)
    for body in bodies:
        deliver(receiver, body)

    assert_stored_once(receiver, ids(first, len(cuts)))


@pytest.mark.fault("the connection is cut after every byte of the answer")
@pytest.mark.timeout(900)
def test_delivery_whose_answer_was_cut_at_any_byte_and_that_is_sent_again_is_stored_once(
    receiver: ReceiverProcess,
) -> None:
    first = 0x2000
    with Wire(receiver.address) as wire:
        body = trace_body(first)
        wire.socket.sendall(post_head(len(body)) + body)
        size_bytes = len(wire.socket.recv(65_536))
    cuts = sampled(range(size_bytes + 1), CUTS_SHORT)
    bodies = [body, *(trace_body(trace) for trace in range(first + 1, first + len(cuts)))]
    was_answered = [
        read_partial_answer(receiver.address, post_head(len(body)) + body, cut)
        for cut, body in zip(cuts, bodies, strict=True)
    ]
    for body in bodies:
        deliver(receiver, body)

    assert all(was_answered)
    assert_stored_once(receiver, ids(first, len(cuts)))


@pytest.mark.fault("twice the allowed number of connections stall in the headers, in the body, or after it")
@pytest.mark.timeout(180)
def test_half_open_connections_are_closed_and_others_are_served(receiver: ReceiverProcess) -> None:
    body = trace_body(0x3000)
    request = post_head(len(body)) + body
    silent_after = (0, 10, len(request) - len(body) // 2)
    with ExitStack() as connections:
        opened = 0
        for number in range(4 * CONNECTIONS_MAX):
            with suppress(OSError):
                wire = connections.enter_context(Wire(receiver.address))
                wire.socket.sendall(request[: silent_after[number % len(silent_after)]])
                opened += 1
        deliver(receiver, body)

    assert opened > 2 * CONNECTIONS_MAX
    assert_stored_once(receiver, ids(0x3000, 1))


def send_slowly(address: tuple[str, int], request: bytes, ended: threading.Event) -> bool:
    """Send one byte at a time. Returns whether the receiver closed the connection."""
    with Wire(address) as wire:
        try:
            for byte in request:
                if ended.wait(0.25):
                    return False
                wire.socket.sendall(bytes([byte]))
        except OSError:
            return True
    return False


def send_without_reading(address: tuple[str, int], request: bytes, ended: threading.Event) -> bool:
    """Send requests without reading a response. Returns whether the receiver closed the connection."""
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
    "senders with slow bodies and clients that never read a response, next to a healthy sender"
)
@pytest.mark.timeout(180)
def test_slow_senders_and_clients_that_never_read_are_disconnected_and_delay_no_other_sender(
    receiver: ReceiverProcess,
) -> None:
    slow_body = trace_body(0x4000, text="x" * 4_000)
    slow = post_head(len(slow_body)) + slow_body
    unread = post_head(0, path="/nowhere")
    ended, statuses = threading.Event(), Counter[int]()
    readers = SLOW_COUNT if IS_LONG else 0  # the receiver takes 20 s to close each
    with ThreadPoolExecutor(2 * SLOW_COUNT) as pool:
        futures = [
            *(pool.submit(send_slowly, receiver.address, slow, ended) for _ in range(SLOW_COUNT)),
            *(pool.submit(send_without_reading, receiver.address, unread, ended) for _ in range(readers)),
        ]
        count = 400 if IS_LONG else 40
        for trace in range(0x5000, 0x5000 + count):
            statuses[post(receiver.address, trace_body(trace))] += 1
        try:
            receiver.wait_until(lambda: all(future.done() for future in futures), "connections stay open")
        finally:
            ended.set()
        were_closed = [future.result() for future in futures]

    assert statuses == {200: count}
    assert all(were_closed)
    assert_stored_once(receiver, ids(0x5000, count))
