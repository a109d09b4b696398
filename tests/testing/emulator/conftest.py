"""A running emulator, a receiver of its webhooks, and its gateway in an application of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.emulator import RunningEmulator, emulator
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.webhook_receiver import WebhookReceiver, webhook_receiver


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with webhook_receiver() as running:
        yield running


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as running:
        yield running
