"""Tests of the limits within which the core collects deliveries; what exceeds them goes to Python."""

from __future__ import annotations

import pytest

from receiver.intake.batch_handler import COLLECTED_BYTES_MAX
from receiver.model import ContentKind, Delivery
from receiver.settings import KIB, MIB, Drain
from receiver.transcode import FastConnection, FastPath, FastSender, KnownHead
from tests.support.intake import on_uvloop, request, running

HEAD = KnownHead(b"POST ", b"\r\n")


class Sender:
    """A sender, and the bytes that the core passed on."""

    def __init__(self, body_bytes_max: int = MIB) -> None:
        origin = Delivery("d", b"", ContentKind.PROTOBUF, (), 0, strict=False, body_bytes_max=MIB)
        self.announced = list[FastSender]()
        self.passed_on = list[bytes]()
        self.fast_sender = FastSender(origin, body_bytes_max, self.announced.append)

    def deliver(self, body: bytes) -> None:
        """Let a delivery arrive on a new connection."""
        connection = FastConnection(FastPath(), self, self.passed_on.append)
        connection.learn(HEAD, self.fast_sender)
        connection.is_ready = True
        connection(b"POST %d\r\n" % len(body) + body)


def test_body_over_the_limit_of_its_sender_is_passed_on() -> None:
    sender = Sender(body_bytes_max=3)

    sender.deliver(b"abc")
    sender.deliver(b"abcd")

    assert sender.passed_on == [b"POST 4\r\nabcd"]
    assert [batch.body_bytes for batch in sender.fast_sender.take()] == [3]


def test_core_holds_at_most_a_mebibyte_that_no_memory_is_claimed_for() -> None:
    sender = Sender()
    for _ in range(20):
        sender.deliver(bytes(64 * KIB))
    held = sum(batch.body_bytes for batch in sender.fast_sender.take())
    sender.deliver(b"abc")

    assert MIB - 65 * KIB < held <= MIB
    assert len(sender.passed_on) == 20 - held // (64 * KIB)
    assert sum(map(len, sender.fast_sender.take())) == 1


@pytest.mark.parametrize(
    ("count", "size_bytes", "counts"), [(300, 3, [256, 44]), (6, 100 * KIB, [2, 2, 2]), (1, 300 * KIB, [1])]
)
def test_batch_has_at_most_256_deliveries_and_256_kib(count: int, size_bytes: int, counts: list[int]) -> None:
    sender = Sender()
    for _ in range(count):
        sender.deliver(bytes(size_bytes))

    assert [len(batch) for batch in sender.fast_sender.take()] == counts
    assert len(sender.announced) == 1


@on_uvloop
async def test_large_body_is_not_collected() -> None:
    async with running(Drain(name="d", tokens=("t",))) as intake:
        connection = await intake.used_connection(authorization="Bearer t")
        (protocol,) = intake.server.connections
        for size_bytes, is_collected in ((COLLECTED_BYTES_MAX, True), (COLLECTED_BYTES_MAX + 1, False)):
            protocol.data_received(request(b"\n" + bytes(size_bytes - 1), authorization="Bearer t"))
            assert protocol._fast.is_waiting is is_collected  # type: ignore[attr-defined]  # noqa: SLF001
            assert (await connection.answer()).status == 200
