"""One delivery through the reception, its body coming as a test lets it come."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from receiver.errors import MemoryBudgetSpent
from receiver.intake.admission import Admission, Claim, budget
from receiver.intake.answers import HANG_UP
from receiver.intake.arriving_body import ArrivingBody
from receiver.intake.fast_path import KnownHead
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.known_heads import HeadBytes
from receiver.intake.pending import ReceiptCallback
from receiver.intake.routes import Routes
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery
from receiver.settings import Drain, Limits
from tests.support.intake import SPAN_BODY, OutcomeDouble, until

DRAINS = (Drain(name="d"),)
PATIENT = Limits(body_grace_s=60, body_timeout_s=60)


class Promising:
    """A reception, and who promises what it takes: at once, remembering when it had come."""

    def __init__(self) -> None:
        self.routes = Routes(DRAINS, PATIENT, post_root=True)
        self.admission = Admission(budget(PATIENT, DRAINS), lambda: None)
        self.metrics = Metrics()
        self.delivery_handler = DeliveryHandler(self.routes, PATIENT, self.admission, self, self.metrics)
        self.received_at: list[float] = []

    async def commit(self, _: Delivery, _drain: Drain, received_at: float, _claim: Claim) -> OutcomeDouble:
        self.received_at.append(received_at)
        return OutcomeDouble()

    def submit(
        self, _: Delivery, _drain: Drain, received_at: float, _claim: Claim, on_receipt: ReceiptCallback
    ) -> None:
        self.received_at.append(received_at)
        on_receipt(OutcomeDouble())

    @property
    def known(self) -> KnownHead:
        """A head that was read before."""
        route = self.routes.find("/v1/traces")
        head = Head(
            routes=self.routes,
            route=route,
            admitted=route.drains,
            shows_token=False,
            kind=ContentKind.PROTOBUF,
            encodings=(),
            expects_continue=False,
            headers={},
        )
        return self.delivery_handler.fast_path.learn(head, HeadBytes(b"", b""))


async def test_a_delivery_is_received_once_its_body_is_whole() -> None:
    intake, payload = Promising(), ArrivingBody(len(SPAN_BODY))
    answering = asyncio.create_task(
        intake.delivery_handler.answer_known(intake.known, len(SPAN_BODY), payload)
    )
    await asyncio.sleep(0.01)
    whole_at = asyncio.get_running_loop().time()
    payload.feed(SPAN_BODY)

    assert (await answering).status == 200
    assert intake.received_at[0] >= whole_at
    assert intake.admission.bytes_in_flight == 0


class Held:
    """A body of which a piece has come, and which can be watched."""

    def __init__(self) -> None:
        self.trouble: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.pieces = [b"x" * 10]
        self.total_bytes = 10

    def is_eof(self) -> bool:
        return False

    def read_nowait(self) -> bytes:
        return b""

    async def readany(self) -> bytes:
        return self.pieces.pop() if self.pieces else await self.trouble

    def set_exception(self, exc: BaseException) -> None:
        self.trouble.set_exception(exc)


async def test_dismissed_body_is_freed_at_once() -> None:
    intake, payload = Promising(), Held()
    answering = asyncio.create_task(intake.delivery_handler.answer_known(intake.known, 20, payload))
    pieces = payload.pieces
    await until(lambda: not pieces)
    gc.disable()
    try:
        payload.set_exception(MemoryBudgetSpent("no room"))
        status = (await answering).status
        watched = weakref.ref(payload)
        del payload, answering
        is_held = watched() is not None
    finally:
        gc.enable()

    assert status == 503
    assert not is_held


@pytest.mark.timeout(30)
async def test_reloaded_minimum_speed_applies_to_later_bodies() -> None:
    intake = Promising()
    intake.delivery_handler.use(intake.routes, Limits(body_grace_s=0.01, body_timeout_s=0.01))

    reply = await intake.delivery_handler.answer_known(intake.known, 10, ArrivingBody(10))

    counted = {(one.name, *one.labels): one.value for one in intake.metrics.snapshot().series}
    assert reply is HANG_UP
    assert counted["deliveries", "d", "closed"] == 1
