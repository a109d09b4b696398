"""Events of a deployment, as a platform sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from receiver.platform.client.event import Event

START_MS = 1_700_000_000_000
Raw = dict[str, Any]


FULL_EVENT: Raw = {
    "type": "request",
    "created": START_MS,
    "payload": {
        "deploymentId": "dpl_1",
        "info": {
            "type": "build",
            "name": "bld_1",
            "entrypoint": "api/index.js",
            "path": "api",
            "step": "install",
            "readyState": "BUILDING",
            "new": 1,
        },
        "text": "GET /",
        "id": "evt_1",
        "date": START_MS,
        "serial": "1",
        "created": START_MS,
        "statusCode": 200,
        "requestId": "req_1",
        "proxy": {
            "timestamp": START_MS,
            "method": "GET",
            "host": "shop.example",
            "path": "/",
            "statusCode": 200,
            "userAgent": ["curl/8"],
            "referer": "https://a.example",
            "clientIp": "192.0.2.1",
            "region": "fra1",
            "scheme": "https",
            "responseByteSize": 12,
            "cacheId": "c",
            "pathType": "func",
            "pathTypeVariant": "v",
            "platformId": "fra1::1",
            "platformCache": "MISS",
            "lambdaRegion": "iad1",
            "wafAction": "log",
            "wafRuleId": "rule",
            "new": None,
        },
        "new": {"a": [1, None]},
    },
    "unknown": {"kept": [1, None]},
}
"""An event with every field that the platform states, and with others."""


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
