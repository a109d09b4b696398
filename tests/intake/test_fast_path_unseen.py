"""The shortcut is seen by nobody: whatever is sent, the answers are those of the same server without it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.intake.admission import Admission, Claim, budget
from receiver.intake.fast_path_protocol import FastPathProtocol
from receiver.intake.handler import DeliveryHandler
from receiver.intake.listener import AcceptedConnection, caps
from receiver.intake.load_shedding import LoadShedder
from receiver.intake.pending import ReceiptCallback
from receiver.intake.protocol import IntakeProtocol
from receiver.intake.routes import Routes
from receiver.intake.server import IntakeServer
from receiver.metrics import Metrics
from receiver.model import Delivery
from receiver.settings import Drain, Limits, Settings
from tests.support.intake import OutcomeDouble, request

TOKEN = Drain(name="d", tokens=("t",))
KNOWN = "Bearer t"
FEW_BYTES = Limits(body_bytes_max=500)


@dataclass
class Wire(asyncio.Transport):
    """The other end of a connection, in memory."""

    protocol: IntakeProtocol | None = None
    said: bytes = b""
    is_over: bool = False
    extra: dict[str, object] = field(default_factory=dict)

    def write(self, data: Any) -> None:  # noqa: ANN401 - as its base
        self.said += b"" if self.is_over else bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        if not self.is_over and self.protocol is not None:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        """Everything is there already."""

    resume_reading = pause_reading

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.extra.get(name, default)


class Exchange:
    """One connection to a server of our choice, and what became of what was sent."""

    def __init__(self, protocol: type[IntakeProtocol]) -> None:
        self.taken: list[tuple[bytes, str]] = []
        metrics = Metrics()
        routes = Routes((TOKEN,), FEW_BYTES, post_root=True)
        admission = Admission(budget(FEW_BYTES, (TOKEN,)), lambda: None)
        delivery_handler = DeliveryHandler(routes, FEW_BYTES, admission, self, metrics)
        load_shedder = LoadShedder(lambda: None, metrics)
        self.server = IntakeServer(
            delivery_handler,
            FEW_BYTES,
            caps(Settings()),
            metrics,
            load_shedder=load_shedder,
            protocol=protocol,
        )
        self.wire = Wire()
        listener = self.server._listener  # noqa: SLF001 - the only way in without a socket
        connection = AcceptedConnection(listener, cast("Any", None), "x", is_refused=False)
        self.protocol = self.wire.protocol = self.server.protocol_of(connection)
        self.protocol.connection_made(self.wire)

    async def commit(self, delivery: Delivery, _drain: Drain, _at: float, _claim: Claim) -> OutcomeDouble:
        await asyncio.sleep(0)
        self.taken.append((delivery.body, delivery.content_kind))
        return OutcomeDouble(rejected=len(delivery.body) % 3)

    def submit(
        self, delivery: Delivery, _drain: Drain, _at: float, _claim: Claim, on_receipt: ReceiptCallback
    ) -> None:
        def later() -> None:
            self.taken.append((delivery.body, delivery.content_kind))
            on_receipt(OutcomeDouble(rejected=len(delivery.body) % 3))

        asyncio.get_running_loop().call_soon(later)

    async def send(self, pieces: list[bytes], *, is_patient: bool) -> None:
        """Send the pieces, each after the answers to those before it, or all at once.

        Nothing in between: whether a refused body has arrived when its refusal is sent decides whether the
        connection closes, and the two protocols need different numbers of event loop iterations for that.
        """
        for piece in pieces:
            if not self.wire.is_over:
                self.protocol.data_received(piece)
            if is_patient:
                await self.quiet()
        await self.quiet()

    async def quiet(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)

    @property
    def outcome(self) -> tuple[bytes, list[tuple[bytes, str]], bool]:
        said = re.sub(rb"Date: [^\r]*\r\n", b"", self.wire.said)
        return said, self.taken, self.wire.is_over


BODIES = st.binary(min_size=1, max_size=60) | st.just(request(b"smuggled", authorization=KNOWN))
COMMON = BODIES.map(lambda body: request(body, authorization=KNOWN))
CHUNKED = b"5\r\nabcde\r\n0\r\n\r\n"
OTHERS = st.one_of(
    BODIES.map(lambda body: request(body, authorization=KNOWN, content_type="application/json")),
    BODIES.map(lambda body: request(body, authorization="Bearer wrong")),
    BODIES.map(lambda body: request(body, authorization=KNOWN, path="/elsewhere")),
    BODIES.map(lambda body: request(body, authorization=KNOWN, content_type="text/plain")),
    st.just(request(b"", authorization=KNOWN)),
    st.just(request(b"", method="OPTIONS", content_length="")),
    st.just(request(b"", method="GET", content_length="", content_type="")),
    st.just(request(b"", authorization=KNOWN, content_type="")),
    st.just(request(b"", authorization=KNOWN, content_type="text/plain")),
    st.just(request(CHUNKED, authorization=KNOWN, content_length="", transfer_encoding="chunked")),
)
ENDS = st.sampled_from(
    [
        b"",
        request(authorization=KNOWN, connection="close"),
        request(b"", authorization=KNOWN, content_length=f"{FEW_BYTES.body_bytes_max + 1}"),
        request(b"", authorization=KNOWN, content_length="+10") + bytes(10),
        request(b"", authorization=KNOWN, content_length="010") + bytes(10),
        request(authorization=KNOWN).replace(b"POST ", b"P\x01ST "),
        request(authorization=KNOWN)[:-3],
    ]
)


@st.composite
def bursts(draw: st.DrawFn) -> list[bytes]:
    """What is sent without waiting for an answer: requests cut anywhere, often between head and body."""
    stream = b"".join(draw(st.lists(COMMON | COMMON | COMMON | OTHERS, min_size=1, max_size=4)))
    between = [found.end() for found in re.finditer(rb"\r\n\r\n", stream)]
    places = sorted(draw(st.lists(st.integers(0, len(stream)) | st.sampled_from(between), max_size=6)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


@settings(max_examples=150, deadline=None)
@given(sent=st.lists(bursts(), min_size=1, max_size=4), end=ENDS, is_patient=st.booleans())
def test_stream_split_anywhere_is_answered_as_without_the_fast_path(
    sent: list[list[bytes]], end: bytes, *, is_patient: bool
) -> None:
    async def outcome_of(protocol: type[IntakeProtocol]) -> Any:  # noqa: ANN401 - compared only
        exchange = Exchange(protocol)
        await exchange.send([request(authorization=KNOWN)], is_patient=True)
        for burst in sent:
            await exchange.send(burst, is_patient=is_patient)
        await exchange.send([end], is_patient=True)
        outcome = exchange.outcome
        exchange.wire.close()
        await exchange.quiet()
        return outcome

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(outcome_of(FastPathProtocol)) == runner.run(outcome_of(IntakeProtocol))
