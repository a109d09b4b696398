"""Deployment events as the platform sends them."""

from __future__ import annotations

from typing import Any

from tests.support.random_filters import NOW_S

NOW_MS = NOW_S * 1_000


def build_line(number: int, text: str = "line", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a line of a build log."""
    info = {"type": "build", "name": "bld_1", "entrypoint": "api/cart.ts"}
    payload = {"id": f"ev_{number}", "serial": str(number), "text": text, "info": info}
    return {"type": "stdout", "created": NOW_MS + number, "payload": payload, **more}


def state_event(number: int, state: str) -> dict[str, Any]:
    """Return a change of the state of a deployment."""
    payload = {"id": f"state_{number}", "info": {"readyState": state}}
    return {"type": "deployment-state", "created": NOW_MS + number, "payload": payload}


def request_event(
    number: int, request: str, status: int = 200, **proxy: Any  # noqa: ANN401 - any JSON
) -> dict[str, Any]:
    """Return a request. Its platform id is `platform` with the request id."""
    made = {
        **{"timestamp": NOW_MS + number, "method": "GET", "host": "shop.example", "path": "/cart"},
        **{"statusCode": status, "platformId": f"platform {request}", **proxy},
    }
    payload = {"id": f"request_{number}_{request}", "requestId": request, "statusCode": status, "proxy": made}
    return {"type": "request", "created": NOW_MS + number, "payload": payload}
