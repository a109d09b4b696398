"""Webhooks at the intake: a verified body is written to the inbox before it is acknowledged.

Invariant: the event loop never waits for the disk, and a response never waits longer than its deadline. A
    body that cannot be written in time is freed, so that it uses neither memory nor the time of later bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from receiver.errors import DeadlinePassed, DiskTrouble, place_and_reason
from receiver.intake.run import KeepWebhook
from receiver.intake.worker_thread import WorkerThread
from receiver.logs import limited
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import parse
from receiver.settings import Webhook as Limits

NS_PER_MS = 1_000_000


def webhook_keeper(data_dir: Path, now_ns: Callable[[], int]) -> KeepWebhook:
    """Return the function that an intake calls with each verified webhook."""
    return WebhookKeeper(Inbox(data_dir), now_ns).keep


class WebhookKeeper:
    """Writes webhooks to the inbox on a thread, one after another."""

    def __init__(self, inbox: Inbox, now_ns: Callable[[], int]) -> None:
        self._inbox = inbox
        self._now_ns = now_ns
        self._thread = WorkerThread("webhooks")

    async def keep(self, limits: Limits, deadline_s: float, raw: bytes) -> None:
        """Store a webhook durably.

        Raises `MalformedBody`, or `Unavailable` if it is not on disk: then the platform sends it again.
        """
        bodies = [raw]
        # The second half of the time is for the write. Otherwise, with a queue longer than the deadline,
        # every webhook would be written too late and none acknowledged.
        freed = asyncio.get_running_loop().call_later(deadline_s / 2, bodies.clear)
        try:
            await asyncio.wait_for(self._thread.submit(self._keep, limits, bodies), deadline_s)
        except TimeoutError:
            raise DeadlinePassed(
                "the webhook was not written to disk in time; it may still be written"
            ) from None
        finally:
            freed.cancel()
            bodies.clear()

    def _keep(self, limits: Limits, bodies: list[bytes]) -> None:
        """Write a body, unless it was freed."""
        try:
            raw = bodies.pop()
        except IndexError:
            raise DeadlinePassed("too many webhooks wait to be written to disk; retry later") from None
        try:
            self._inbox.keep(parse(raw, self._now_ns() // NS_PER_MS), limits)
        except OSError as error:
            # Without the cause, which has a path of this machine.
            limited.error("webhook", "webhook cannot be written", error=place_and_reason(error))
            raise DiskTrouble("the webhook cannot be written to disk; retry later") from error
