"""Tests of the delivery handler with bodies that arrive under the test's control."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from receiver.errors import MemoryBudgetSpent
from receiver.intake.admission import Admission, Claim, budget
from receiver.intake.answers import HANG_UP
from receiver.intake.connections.body import ArrivingBody
from receiver.intake.handler import DeliveryHandler
from receiver.intake.head import Head
from receiver.intake.pending import PendingDelivery, ReceiptCallback
from receiver.intake.routes import Routes
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery
from receiver.settings import Drain, Limits
from tests.support.intake import SPAN_BODY, OutcomeDouble, until

DRAINS = (Drain(name="d"),)
PATIENT = Limits(body_grace_s=60, body_timeout_s=60)


class HandlerUnderTest:
    """Handler with a committer that accepts every delivery at once and records its receive time."""

    def __init__(self) -> None:
        self.routes = Routes(DRAINS, PATIENT, post_root=True)
        self.admission = Admission(budget(PATIENT, DRAINS), lambda: None)
        self.metrics = Metrics()
        self.delivery_handler = DeliveryHandler(
            self.routes, PATIENT, self.admission, self.submit, self.metrics
        )
        self.received_at: list[float] = []

    def submit(
        self, delivery: Delivery, _: Drain, received_at: float, claim: Claim, on_receipt: ReceiptCallback
    ) -> PendingDelivery:
        self.received_at.append(received_at)
        pending = PendingDelivery(delivery, claim, on_receipt, received_at, until_stored=False)
        pending.resolve(OutcomeDouble())
        return pending

    @property
    def known(self) -> Head:
        """Return a head that was read before."""
        route = self.routes.find("/v1/traces")
        return Head(
            routes=self.routes,
            route=route,
            admitted=route.drains,
            shows_token=False,
            kind=ContentKind.PROTOBUF,
            encodings=(),
            expects_continue=False,
            headers={},
            inline_bytes_max=route.body_bytes_max,
        )


async def test_receive_time_is_that_of_the_complete_body() -> None:
    intake, payload = HandlerUnderTest(), ArrivingBody(len(SPAN_BODY))
    answering = asyncio.create_task(
        intake.delivery_handler.answer_arriving(intake.known, len(SPAN_BODY), payload)
    )
    await asyncio.sleep(0.01)
    complete_at = asyncio.get_running_loop().time()
    payload.feed(SPAN_BODY)

    assert (await answering).status == 200
    assert intake.received_at[0] >= complete_at
    assert intake.admission.bytes_in_flight == 0


class PartialBody:
    """Incomplete body that supports weak references."""

    def __init__(self) -> None:
        self.error: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.pieces = [b"x" * 10]
        self.total_bytes = 10

    def is_eof(self) -> bool:
        return False

    def read_nowait(self) -> bytes:
        return b""

    async def readany(self) -> bytes:
        return self.pieces.pop() if self.pieces else await self.error

    def set_exception(self, exc: BaseException) -> None:
        self.error.set_exception(exc)


async def test_dismissed_body_is_freed_at_once() -> None:
    intake, payload = HandlerUnderTest(), PartialBody()
    answering = asyncio.create_task(intake.delivery_handler.answer_arriving(intake.known, 20, payload))
    pieces = payload.pieces
    await until(lambda: not pieces)
    gc.disable()
    try:
        payload.set_exception(MemoryBudgetSpent("no memory"))
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
    intake = HandlerUnderTest()
    intake.delivery_handler.use(intake.routes, Limits(body_grace_s=0.01, body_timeout_s=0.01))

    reply = await intake.delivery_handler.answer_arriving(intake.known, 10, ArrivingBody(10))

    values = {(series.name, *series.labels): series.value for series in intake.metrics.snapshot().series}
    assert reply is HANG_UP
    assert values["deliveries", "d", "closed"] == 1
