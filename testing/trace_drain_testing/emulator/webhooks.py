"""Webhooks of the emulated platform: signed, sent at least once, in any order, retried for 24 hours.

Invariant: while an installation is disabled, only webhooks of `SENT_WHILE_DISABLED` are sent to it. Other
webhooks wait until it is active again, or until their 24 hours are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from trace_drain_testing.emulator.clock import Clock, Signal
from trace_drain_testing.emulator.ids import Ids
from trace_drain_testing.emulator.installations import Installation
from trace_drain_testing.emulator.posts import Poster, signature_of
from trace_drain_testing.emulator.switches import Faults, Unstated

TYPES: Final = (
    *("project.created", "project.removed", "integration-configuration.removed"),
    "integration-configuration.scope-change-confirmed",
)
"""Types that the specification names."""
SENT_WHILE_DISABLED: Final = frozenset(TYPES[:3])
RETRIED_S_MAX = 86_400
RETRY_S_FIRST = 10.0
"""Time before the first retry. It doubles each time."""
RETRY_S_MAX = 3_600.0
LATE_S = 3_600.0
"""Delay of a webhook that a fault delays."""
KEPT_MAX = 10_000
"""Maximum number of webhooks in memory. At the limit, the older half of the waiting webhooks is dropped."""
CONCURRENT_MAX = 8
Outcome = Literal["waiting", "delivered", "given up"]


@dataclass
class OutgoingWebhook:
    id: str
    type: str
    url: str
    created_ms: int
    body: bytes
    installation: Installation | None
    due_s: float
    retry_s: float
    outcome: Outcome = "waiting"
    attempts: int = 0
    last_status: int | None = None
    is_twice: bool = False
    is_held: bool = False
    """Whether it waits until another webhook is sent."""

    def summary(self) -> dict[str, Any]:
        """Return the webhook without its body."""
        return {
            "id": self.id,
            "type": self.type,
            "url": self.url,
            "created": self.created_ms,
            "outcome": self.outcome,
            "attempts": self.attempts,
            "last_status": self.last_status,
            "due": self.due_s,
        }

    @property
    def is_paused(self) -> bool:
        """Whether it waits because its installation is disabled."""
        installation = self.installation
        return (
            installation is not None
            and installation.state == "disabled"
            and self.type not in SENT_WHILE_DISABLED
        )


@dataclass
class Webhooks:
    clock: Clock
    ids: Ids
    faults: Faults
    unstated: Unstated
    secret: str
    sent: list[OutgoingWebhook] = field(default_factory=list)
    _added: Signal = field(default_factory=Signal)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _poster: Poster = field(default_factory=Poster)

    def add(
        self, kind: str, payload: Mapping[str, object], url: str, installation: Installation | None
    ) -> OutgoingWebhook:
        """Create a webhook, which is due now unless a fault delays it."""
        now_ms = self.clock.now_ms()
        webhook_id = self.ids.new("evt_")
        document = _document(webhook_id, kind, now_ms, payload, self.unstated.shape_of("P51"))
        late_s = LATE_S if self.faults.take("webhook-late") else 0.0
        made = OutgoingWebhook(
            webhook_id,
            kind,
            url,
            now_ms,
            msgspec.json.encode(document),
            installation,
            self.clock.now_s() + late_s,
            RETRY_S_FIRST,
            is_twice=self.faults.take("webhook-twice"),
            is_held=self.faults.take("webhook-out-of-order"),
        )
        self._evict()
        self.sent.append(made)
        self._added.notify()
        return made

    async def run(self) -> None:
        """Send webhooks when they are due, until cancelled."""
        while True:
            await self.send_due()
            waiting = [
                each.due_s
                for each in self.sent
                if each.outcome == "waiting" and not each.is_held and not each.is_paused
            ]
            pause_s = max(0.05, min(waiting) - self.clock.now_s()) if waiting else None
            # A manual clock moves only in `POST /clock`, which sends due webhooks.
            await self._added.wait(None if self.clock.is_manual else pause_s)

    async def send_due(self) -> None:
        """Send every webhook that is due, once."""
        async with self._sending:
            free = asyncio.Semaphore(CONCURRENT_MAX)
            due = [each for each in self.sent if self._is_due(each)]
            await asyncio.gather(*(self._attempt(each, free) for each in due))
            if due:
                # The next round sends the held webhooks, after those of this round.
                held = [each for each in self.sent if each.is_held]
                for each in held:
                    each.is_held = False
                await asyncio.gather(*(self._attempt(each, free) for each in held if self._is_due(each)))

    async def close(self) -> None:
        await self._poster.close()

    def _is_due(self, webhook: OutgoingWebhook) -> bool:
        if webhook.outcome != "waiting":
            return False
        if self.clock.now_s() - webhook.created_ms / 1_000 >= RETRIED_S_MAX:
            webhook.outcome = "given up"
            return False
        return webhook.due_s <= self.clock.now_s() and not webhook.is_held and not webhook.is_paused

    async def _attempt(self, webhook: OutgoingWebhook, free: asyncio.Semaphore) -> None:
        async with free:
            webhook.attempts += 1
            webhook.last_status = await self._post(webhook)
            status = webhook.last_status
            if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                webhook.outcome = "delivered"
                if webhook.is_twice:
                    webhook.attempts += 1
                    await self._post(webhook)
                return
            webhook.due_s = self.clock.now_s() + webhook.retry_s
            webhook.retry_s = min(RETRY_S_MAX, 2 * webhook.retry_s)

    async def _post(self, webhook: OutgoingWebhook) -> int | None:
        """Send it. Return the status of the response; `None` without a response."""
        headers = {
            "Content-Type": "application/json",
            self.unstated.shape_of("P51-header"): self._signature(webhook.body),
        }
        return await self._poster.post(webhook.url, webhook.body, headers)

    def _signature(self, body: bytes) -> str:
        if self.faults.take("webhook-rotated-secret"):
            self.secret = self.ids.new("whsec_")
        is_wrong = self.faults.take("webhook-wrong-signature")
        return signature_of(f"{self.secret}, but wrong" if is_wrong else self.secret, body)

    def _evict(self) -> None:
        if len(self.sent) >= KEPT_MAX:
            waiting = [each for each in self.sent if each.outcome == "waiting"]
            self.sent[:] = waiting[-KEPT_MAX // 2 :]


def _document(
    webhook_id: str, kind: str, now_ms: int, payload: Mapping[str, object], shape: str
) -> dict[str, object]:
    document: dict[str, object] = {"id": webhook_id, "type": kind, "createdAt": now_ms}
    if shape == "flat":
        # Last, because the payload may have an id of its own.
        return {**payload, **document}
    if shape == "iso-time":
        document["createdAt"] = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat()
    if shape == "extra":
        document |= {"region": "fra1", "apiVersion": 7, "links": {"self": None}}
    return {**document, "payload": dict(payload)}
