"""Deployment events of the shop: the log of a build, and a line for each request."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from trace_drain_testing.shop.shop_traffic import MS_NS, WORSE_OPERATION, CustomerRequest

Event = dict[str, Any]

LINE_MS = 1_500
"""Time between two lines of a build."""
HOST = "shop.example.com"
BUILD_LINES = (
    ("command", "npm ci"),
    ("stdout", "added 412 packages in 6s"),
    ("command", "npm run build"),
    ("stdout", "Creating an optimized production build ..."),
    ("stdout", "Compiled successfully"),
    ("stdout", "Collecting page data ..."),
)
WORSE_LINE = (
    "stderr",
    f"warning: coupons.js: {WORSE_OPERATION} requests each coupon separately and without a cache",
)
"""Line of a build that explains why the release is worse."""
FAILED_LINES = (
    ("stderr", "Failed to compile."),
    ("stderr", "./app/coupons.ts:88:17 Type error: Property 'expiresAt' does not exist on type 'Coupon'."),
    ("exit", 'Command "npm run build" exited with 1'),
)


class EventWriter:
    def __init__(self, deployment: str, begin_ms: int) -> None:
        self.deployment = deployment
        self._begin_ms = begin_ms
        # Starts at the time, so that a restarted shop repeats no event.
        self._serials = itertools.count(begin_ms * 1_000)

    def build(self, *, is_worse: bool = False, has_failed: bool = False) -> Iterator[Event]:
        """Yield the events of a build, from its place in the queue to its end."""
        lines = [*BUILD_LINES[:4], *FAILED_LINES] if has_failed else [*BUILD_LINES]
        if is_worse:
            lines.append(WORSE_LINE)
        states = ["QUEUED", "INITIALIZING", "BUILDING"]
        at_ms = self._begin_ms
        for state in states:
            yield self._state(state, at_ms)
            at_ms += LINE_MS
        for kind, text in lines:
            yield self._line(kind, text, at_ms)
            at_ms += LINE_MS
        yield self._line("delimiter", "", at_ms)
        yield self._state("ERROR" if has_failed else "READY", at_ms)

    def request(self, request: CustomerRequest, base_ns: int) -> Iterator[Event]:
        """Yield the event of a request, and a line of its log if it failed."""
        at_ms = (base_ns + request.start_ns) // MS_NS
        attributes = request.attributes
        proxy = {
            "timestamp": at_ms,
            "method": attributes["http.request.method"],
            "host": HOST,
            "path": attributes["url.path"],
            "statusCode": request.status,
            "userAgent": [attributes["user_agent.original"]],
            "referer": f"https://{HOST}/",
            "clientIp": attributes["client.address"],
            "region": "iad1",
            "scheme": "https",
            "responseByteSize": attributes["http.response.body.size"],
            "platformId": request.platform_id,
            "platformCache": "MISS",
            "lambdaRegion": "iad1",
            "wafAction": "log",
        }
        facts = {"requestId": request.request_id, "statusCode": request.status}
        text = f"{attributes['http.request.method']} {attributes['http.route']} {request.status}"
        yield self._event("request", text, at_ms, {**facts, "proxy": proxy})
        if request.failure:
            yield self._event("stderr", f"CouponError: {request.failure}", at_ms, facts)

    def _state(self, state: str, at_ms: int) -> Event:
        return self._event(
            "deployment-state", "", at_ms, {"info": {**self._build_info(), "readyState": state}}
        )

    def _line(self, kind: str, text: str, at_ms: int) -> Event:
        return self._event(kind, text, at_ms, {"info": {**self._build_info(), "step": "build"}})

    def _build_info(self) -> dict[str, str]:
        name = f"bld_{self.deployment.removeprefix('dpl_')}"
        return {"type": "build", "name": name, "entrypoint": "package.json", "path": "."}

    def _event(self, kind: str, text: str, at_ms: int, fields: dict[str, Any]) -> Event:
        serial = next(self._serials)
        payload = {
            "deploymentId": self.deployment,
            "text": text,
            "id": f"evt_{self.deployment.removeprefix('dpl_')}_{serial}",
            "date": at_ms,
            "serial": f"{serial:012}",
            "created": at_ms,
            **fields,
        }
        return {"type": kind, "created": at_ms, "payload": payload}
