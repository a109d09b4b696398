"""Property test: for any input the server answers the same with and without the fast path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.intake.admission import Admission, Claim, budget
from receiver.intake.batch import OnAccepted, Parts, PendingBatch, deliveries_of
from receiver.intake.connections.fast_path_protocol import FastPathProtocol
from receiver.intake.connections.listener import AcceptedConnection, caps
from receiver.intake.connections.load_shedding import LoadShedder
from receiver.intake.connections.protocol import IntakeProtocol
from receiver.intake.connections.server import IntakeServer
from receiver.intake.handler import DeliveryHandler
from receiver.intake.pending import PendingDelivery, ReceiptCallback
from receiver.intake.routes import Routes
from receiver.metrics import Metrics
from receiver.model import Delivery
from receiver.settings import Drain, Limits, Settings
from receiver.transcode import FastBatch
from tests.support.cases import RANDOM_CASES
from tests.support.intake import OutcomeDouble, request

TOKEN = Drain(name="d", tokens=("t",))
BEARER = "Bearer t"
SMALL_LIMITS = Limits(body_bytes_max=500)


@dataclass
class MemoryTransport(asyncio.Transport):
    """Transport that keeps the bytes that the protocol writes."""

    protocol: IntakeProtocol | None = None
    written: bytes = b""
    is_closed: bool = False
    extra: dict[str, object] = field(default_factory=dict)

    def write(self, data: Any) -> None:  # noqa: ANN401 - as in its base class
        self.written += b"" if self.is_closed else bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed and self.protocol is not None:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: all input is in memory already."""

    resume_reading = pause_reading

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.extra.get(name, default)


class Exchange:
    """A connection to a server with the given protocol, with its accepted deliveries and answers."""

    def __init__(self, protocol: type[IntakeProtocol]) -> None:
        self.accepted: list[tuple[bytes, str]] = []
        metrics = Metrics()
        routes = Routes((TOKEN,), SMALL_LIMITS, post_root=True)
        admission = Admission(budget(SMALL_LIMITS, (TOKEN,)), lambda: None)
        delivery_handler = DeliveryHandler(routes, SMALL_LIMITS, admission, self.submit, metrics)
        load_shedder = LoadShedder(lambda: None, metrics)
        self.server = IntakeServer(
            delivery_handler,
            self,
            SMALL_LIMITS,
            caps(Settings()),
            metrics,
            load_shedder=load_shedder,
            protocol=protocol,
        )
        self.transport = MemoryTransport()
        listener = self.server._listener  # noqa: SLF001 - the only access without a socket
        connection = AcceptedConnection(listener, cast("Any", None), "x", is_refused=False)
        self.protocol = self.transport.protocol = self.server.protocol_of(connection)
        self.protocol.connection_made(self.transport)

    def submit(
        self, delivery: Delivery, _drain: Drain, at: float, claim: Claim, on_receipt: ReceiptCallback
    ) -> PendingDelivery:
        pending = PendingDelivery(delivery, claim, on_receipt, at, until_stored=False)

        def give_receipt() -> None:
            self.accepted.append((delivery.body, delivery.content_kind))
            pending.resolve(OutcomeDouble(rejected=len(delivery.body) % 3))

        asyncio.get_running_loop().call_soon(give_receipt)
        return pending

    def call_before_group(self, collect: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(collect)

    def submit_batch(
        self, batch: FastBatch, at: float, claim: Claim, on_accepted: OnAccepted, parts: Parts
    ) -> None:
        pending = PendingBatch(batch, claim, on_accepted, parts, at)
        bodies = [delivery.body for _, delivery in deliveries_of(batch)]

        def give_receipt() -> None:
            outcomes = [OutcomeDouble(rejected=len(body) % 3) for body in bodies]
            self.accepted += [(body, batch.origin.content_kind) for body in bodies]
            if all(outcome.is_plain for outcome in outcomes):
                pending.resolve(outcomes[0])
            else:
                for single, outcome in zip(pending.split(), outcomes, strict=True):
                    single.resolve(outcome)

        asyncio.get_running_loop().call_soon(give_receipt)

    async def send(self, pieces: list[bytes], *, waits_for_answers: bool) -> None:
        """Send the pieces, each after the previous answers, or all at once.

        Other timings are not comparable: the connection closes if a refused body is incomplete when the
        refusal is sent, and the two protocols need different numbers of event loop iterations until then.
        """
        for piece in pieces:
            if not self.transport.is_closed:
                self.protocol.data_received(piece)
            if waits_for_answers:
                await self.settle()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)

    @property
    def outcome(self) -> tuple[bytes, list[tuple[bytes, str]], bool]:
        written = re.sub(rb"Date: [^\r]*\r\n", b"", self.transport.written)
        return written, self.accepted, self.transport.is_closed


BODIES = st.binary(min_size=1, max_size=60) | st.just(request(b"smuggled", authorization=BEARER))
COMMON = BODIES.map(lambda body: request(body, authorization=BEARER))
CHUNKED = b"5\r\nabcde\r\n0\r\n\r\n"
OTHERS = st.one_of(
    BODIES.map(lambda body: request(body, authorization=BEARER, content_type="application/json")),
    BODIES.map(lambda body: request(body, authorization="Bearer wrong")),
    BODIES.map(lambda body: request(body, authorization=BEARER, path="/elsewhere")),
    BODIES.map(lambda body: request(body, authorization=BEARER, content_type="text/plain")),
    st.just(request(b"", authorization=BEARER)),
    st.just(request(b"", method="OPTIONS", content_length="")),
    st.just(request(b"", method="GET", content_length="", content_type="")),
    st.just(request(b"", authorization=BEARER, content_type="")),
    st.just(request(b"", authorization=BEARER, content_type="text/plain")),
    st.just(request(CHUNKED, authorization=BEARER, content_length="", transfer_encoding="chunked")),
)
ENDS = st.sampled_from(
    [
        b"",
        request(authorization=BEARER, connection="close"),
        request(b"", authorization=BEARER, content_length=f"{SMALL_LIMITS.body_bytes_max + 1}"),
        request(b"", authorization=BEARER, content_length="+10") + bytes(10),
        request(b"", authorization=BEARER, content_length="010") + bytes(10),
        request(authorization=BEARER).replace(b"POST ", b"P\x01ST "),
        request(authorization=BEARER)[:-3],
    ]
)


@st.composite
def bursts(draw: st.DrawFn) -> list[bytes]:
    """Generate pieces to send without waiting: requests split anywhere, often between head and body."""
    stream = b"".join(draw(st.lists(COMMON | COMMON | COMMON | OTHERS, min_size=1, max_size=4)))
    head_ends = [match.end() for match in re.finditer(rb"\r\n\r\n", stream)]
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)) | st.sampled_from(head_ends), max_size=6)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@pytest.mark.random_cases
@settings(max_examples=2 * RANDOM_CASES)
@given(sent=st.lists(bursts(), min_size=1, max_size=4), end=ENDS, waits_for_answers=st.booleans())
def test_stream_split_anywhere_is_answered_as_without_the_fast_path(
    sent: list[list[bytes]], end: bytes, *, waits_for_answers: bool
) -> None:
    async def outcome_of(protocol: type[IntakeProtocol]) -> Any:  # noqa: ANN401 - compared only
        exchange = Exchange(protocol)
        await exchange.send([request(authorization=BEARER)], waits_for_answers=True)
        for burst in sent:
            await exchange.send(burst, waits_for_answers=waits_for_answers)
        await exchange.send([end], waits_for_answers=True)
        outcome = exchange.outcome
        exchange.transport.close()
        await exchange.settle()
        return outcome

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(outcome_of(FastPathProtocol)) == runner.run(outcome_of(IntakeProtocol))
