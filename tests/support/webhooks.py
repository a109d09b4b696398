"""Support for tests of webhooks: documents, signatures, an intake that receives them."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Iterable
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


class RecordsDouble:
    """Records of projects, deployments and installations that remember each change."""

    def __init__(self) -> None:
        self.named: list[tuple[str, str, float]] = []
        self.removed_projects: list[tuple[str, float]] = []
        self.states: list[tuple[str, str, float]] = []
        self.scopes: list[tuple[str, list[str] | None]] = []
        self.assigned: list[tuple[str, str]] = []
        self.trouble: list[OSError] = []
        self.projects = self.deployments = self.installations = self

    def created(self, project_id: str, name: str, at_s: float) -> bool:
        self._fail()
        self.named.append((project_id, name, at_s))
        return True

    def removed(self, project_id: str, at_s: float) -> bool:
        self._fail()
        self.removed_projects.append((project_id, at_s))
        return True

    def set_state(self, installation_id: str, state: str, at_s: float) -> bool:
        self.states.append((installation_id, state, at_s))
        return True

    def set_scopes(self, installation_id: str, scopes: Iterable[str] | None, _at_s: float) -> bool:
        self.scopes.append((installation_id, None if scopes is None else list(scopes)))
        return True

    def assign(self, deployment_id: str, project_id: str, _at_s: float) -> bool:
        self.assigned.append((deployment_id, project_id))
        return True

    def _fail(self) -> None:
        if self.trouble:
            raise self.trouble.pop()
