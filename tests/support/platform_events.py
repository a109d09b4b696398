"""Events of a deployment, as a platform sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from receiver.platform.client.event import Event

START_MS = 1_700_000_000_000
Raw = dict[str, Any]


def raw_event(number: int, **payload: Any) -> Raw:  # noqa: ANN401 - any JSON
    return {
        "type": "stdout",
        "created": START_MS + number * 100,
        "payload": {"id": f"evt_{number}", "text": f"line {number}", **payload},
    }


def state_event(number: int, state: str) -> Raw:
    return raw_event(number, info={"type": "build", "readyState": state})


def lines(*raws: Raw) -> list[bytes]:
    return [json.dumps(raw).encode() + b"\n" for raw in raws]


async def no_sleep(_delay_s: float) -> None:
    """Wait for nothing."""


def ids(found: Sequence[Event]) -> list[str]:
    return [event.payload.id for event in found]
