"""Support for tests of the committer: a running committer, and deliveries identified by their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from receiver.errors import ReceiverError
from receiver.intake.admission import Admission, Budget, Claim
from receiver.intake.committer import Committer
from receiver.journal.appender import Appender
from receiver.journal.quarantine import Quarantine
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery, Outcome
from receiver.settings import MIB, Drain
from tests.support.intake import AppenderDouble, CoreDouble

DRAIN = Drain(name="d")


def delivery(name: str, *encodings: str) -> Delivery:
    return Delivery(
        "d", b"\n" + name.encode(), ContentKind.PROTOBUF, encodings, 1, strict=False, body_bytes_max=MIB
    )


def claim_of(size_bytes: int) -> Claim:
    """Return a claim from a budget that is never used up."""
    return Admission(Budget(1 << 40, 0), lambda: None).admit(size_bytes, is_known=True)


class RunningCommitter(Committer):
    """A committer that runs and that a test may close early, with its metrics."""

    def __init__(
        self, core: CoreDouble, appender: AppenderDouble | Appender, root: Path, *, answer_deadline_s: float
    ) -> None:
        self.metrics = Metrics("intake-0")
        super().__init__(core, appender, Quarantine(root), self.metrics, answer_deadline_s=answer_deadline_s)
        self._running = asyncio.create_task(self.run())
        self._close_task: asyncio.Task[None] | None = None

    def begin_close(self) -> asyncio.Task[None]:
        """Start closing; later calls return the same task."""
        if self._close_task is None:
            self._close_task = asyncio.create_task(self.close(self._running))
        return self._close_task

    def counters(self) -> dict[str, float]:
        """Return the value of each counter of the only drain."""
        return {series.name: series.value for series in self.metrics.snapshot().series}


@asynccontextmanager
async def committing(
    core: CoreDouble, appender: AppenderDouble | Appender, root: Path, *, answer_deadline_s: float = 10
) -> AsyncIterator[RunningCommitter]:
    committer = RunningCommitter(core, appender, root, answer_deadline_s=answer_deadline_s)
    try:
        yield committer
    finally:
        core.may_continue.set()
        if isinstance(appender, AppenderDouble):
            appender.may_continue.set()
        await committer.begin_close()


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


def commit(
    committer: Committer, name: str, drain: Drain = DRAIN, *, age_s: float = 0
) -> asyncio.Task[object]:
    """Submit a delivery that was received `age_s` ago."""
    received_at = asyncio.get_running_loop().time() - age_s
    return asyncio.create_task(outcome_of(committer, delivery(name), drain, received_at, claim_of(len(name))))


async def verdict_on(task: asyncio.Task[object]) -> ReceiverError:
    try:
        await task
    except ReceiverError as error:
        return error
    raise AssertionError("expected the commit to fail, got a receipt")


def bodies(core: CoreDouble) -> list[list[str]]:
    return [[delivery.body[1:].decode() for delivery in group] for group in core.groups]
