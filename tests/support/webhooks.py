"""Support for tests of webhooks: documents, signatures, an intake that receives them."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.keeper import WebhookKeeper
from receiver.settings import Drain, Limits, Webhook
from tests.support.intake import Answer, Intake, running

SECRET = "webhook-secret"
PATH = "/platform/webhooks"
SETTINGS = Webhook(path=PATH, secrets=(SECRET,))
NOW_MS = 1_700_000_000_000


def document(
    webhook_id: str, kind: str = "project.created", payload: object = None, created_at_ms: int = NOW_MS
) -> bytes:
    """Return the body of a webhook."""
    return json.dumps(
        {"id": webhook_id, "type": kind, "createdAt": created_at_ms, "payload": payload or {}}
    ).encode()


def signature(body: bytes, secret: str = SECRET) -> str:
    """Return the signature of a body."""
    return hmac.new(secret.encode(), body, "sha1").hexdigest()


@asynccontextmanager
async def webhook_intake(
    data_dir: Path,
    settings: Webhook = SETTINGS,
    inbox: Inbox | None = None,
    *drains: Drain,
    limits: Limits | None = None,
) -> AsyncIterator[Intake]:
    """Run an intake that receives webhooks."""
    keeper = WebhookKeeper(inbox or Inbox(data_dir), lambda: NOW_MS * 1_000_000)
    limits = limits or Limits()
    keep = partial(keeper.keep, settings, limits.answer_deadline_s)
    async with running(*drains, limits=limits, webhooks=(settings, keep)) as intake:
        yield intake


async def post(intake: Intake, body: bytes, secret: str = SECRET, **headers: str) -> Answer:
    """Post a signed webhook; header names are written with underscores."""
    named = {"content_type": "application/json", "x_platform_signature": signature(body, secret), **headers}
    return await intake.post(body, PATH, **named)
