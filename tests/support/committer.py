"""Support for tests of the committer: a running committer, and deliveries identified by their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from receiver.errors import ReceiverError
from receiver.intake.committer import Committer
from receiver.intake.quarantine import Quarantine
from receiver.journal.appender import Appender
from receiver.metrics import Metrics
from receiver.model import ContentKind, Delivery
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
        core.may_go_on.set()
        if isinstance(appender, AppenderDouble):
            appender.may_go_on.set()
        await committer.close(running)


def commit(committer: Committer, name: str, drain: Drain = DRAIN) -> asyncio.Task[object]:
    now = asyncio.get_running_loop().time()
    return asyncio.create_task(committer.commit(delivery(name), drain, now, claim_of(len(name))))


async def verdict_on(task: asyncio.Task[object]) -> ReceiverError:
    try:
        await task
    except ReceiverError as reason:
        return reason
    raise AssertionError("expected a verdict, got a receipt")


def bodies(core: CoreDouble) -> list[list[str]]:
    return [[one.body[1:].decode() for one in group] for group in core.groups]
