"""Support for tests of the committer: a running committer, and deliveries identified by their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from receiver.errors import ReceiverError
from receiver.intake.admission import Claim
from receiver.intake.committer import Committer
from receiver.intake.quarantine import Quarantine
from receiver.journal.appender import Appender
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery, Outcome
from receiver.settings import MIB, Drain
from tests.support.intake import AppenderDouble, CoreDouble, claim_of

DRAIN = Drain(name="d")


def delivery(name: str, *encodings: str) -> Delivery:
    return Delivery(
        "d", b"\n" + name.encode(), ContentKind.PROTOBUF, encodings, 1, strict=False, body_bytes_max=MIB
    )


@asynccontextmanager
async def committing(
    core: CoreDouble, appender: AppenderDouble | Appender, root: Path, *, answer_deadline_s: float = 10
) -> AsyncIterator[Committer]:
    committer = Committer(
        core, appender, Quarantine(root), Metrics("intake-0"), answer_deadline_s=answer_deadline_s
    )
    running = asyncio.create_task(committer.run())
    try:
        yield committer
    finally:
        core.may_continue.set()
        if isinstance(appender, AppenderDouble):
            appender.may_continue.set()
        await committer.close(running)


async def outcome_of(
    committer: Committer, delivery: Delivery, drain: Drain, received_at: float, claim: Claim
) -> Outcome:
    """Commit one delivery and return its outcome; raise the error that refuses it."""
    receipt_future: asyncio.Future[Outcome | ReceiverError] = asyncio.get_running_loop().create_future()

    def on_receipt(receipt: Outcome | ReceiverError) -> None:
        if not receipt_future.done():
            receipt_future.set_result(receipt)

    pending = committer.submit(delivery, drain, received_at, claim, on_receipt)
    try:
        receipt = await receipt_future
    finally:
        pending.abandon()
    if isinstance(receipt, ReceiverError):
        raise receipt
    return receipt


def commit(committer: Committer, name: str, drain: Drain = DRAIN) -> asyncio.Task[object]:
    now = asyncio.get_running_loop().time()
    return asyncio.create_task(outcome_of(committer, delivery(name), drain, now, claim_of(len(name))))


async def verdict_on(task: asyncio.Task[object]) -> ReceiverError:
    try:
        await task
    except ReceiverError as error:
        return error
    raise AssertionError("expected the commit to fail, got a receipt")


def bodies(core: CoreDouble) -> list[list[str]]:
    return [[delivery.body[1:].decode() for delivery in group] for group in core.groups]
