"""Emulated trace drains: signed deliveries to a URL, test events, retries, and the failure budget."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from receiver.backoff import backoff_s
from trace_drain_testing.emulator.drains_traffic import (
    PLATFORM_SCOPE,
    Rule,
    ServiceSpans,
    Traffic,
    encoded,
    forwarded,
)
from trace_drain_testing.emulator.posts import Poster, signature_of
from trace_drain_testing.load.traffic import Resource, Span, Value
from trace_drain_testing.load.wire import ENCODINGS

FAILURES_MAX = 50
"""Failed deliveries of the last hour above which a drain is marked errored."""
FAILED_RATIO_MAX = 0.8
DELIVERIES_MIN = 10
"""Minimum number of deliveries in the last hour for a ratio: two failures prove nothing."""
BUDGET_S = 3_600
RETRIES_MAX = 10
RETRY_FIRST_S = 1.0
"""Pause before the first retry. Doubled before each further retry."""
RETRIES_WAITING_MAX = 1_000
"""Maximum number of deliveries that wait for a retry; further deliveries are lost."""
NOTICES_MAX = 100
DRAINS_MAX = 100
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FAULTS = ("drain-twice", "drain-wrong-signature", "drain-out-of-order")
"""Names of the faults that a delivery can have. `drain-out-of-order`: sent after the next delivery."""
UNSTATED: Mapping[str, tuple[str, ...]] = {"P41": ("forwarded", "paused")}
"""Whether trace drains continue while the configuration is disabled; the first value is the default."""
TEST_PROJECT, TEST_DEPLOYMENT = "prj_test", "dpl_test"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    type: Literal["traces"] = "traces"
    format: Literal["json", "protobuf"] = "json"
    secret: str = ""
    """Secret of the signature; empty means that deliveries are not signed."""
    signature_header: str = "x-platform-signature"
    headers: dict[str, str] = {}
    rules: tuple[Rule, ...] = ()
    rate: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Fraction of all traces to forward; short for a single rule without conditions."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=RETRIES_MAX)] = 0
    """Number of retries of a failed delivery; then it is lost."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        schemes = {"https", "http"} if parts.hostname in LOOPBACK else {"https"}
        if not parts.hostname or parts.scheme not in schemes:
            raise ValueError("`url` is not https (http is accepted for this machine)")
        if self.rules and self.rate is not None:
            raise ValueError("`rate` and `rules` exclude each other")
        names = [*self.headers, self.signature_header]
        if not all(map(_HEADER_NAME.fullmatch, names)) or not all(
            map(_HEADER_VALUE.fullmatch, self.headers.values())
        ):
            raise ValueError("`headers` has a malformed name or value")

    @property
    def ordered_rules(self) -> tuple[Rule, ...]:
        """Return the sampling rules; empty means that all traces are forwarded."""
        return self.rules if self.rate is None else (Rule(self.rate),)


@dataclass
class Drain:
    id: str
    config: DrainRequest
    state: Literal["active", "errored"] = "active"
    delivered: int = 0
    failed: int = 0
    lost: int = 0
    """Number of deliveries that were given up."""
    results: deque[tuple[float, bool]] = field(default_factory=deque)
    """Time and success of the deliveries of the last hour."""
    held: bytes | None = None
    """Delivery that a fault delays until after the next delivery."""

    def summary(self) -> dict[str, Any]:
        """Return the drain without its secrets."""
        config = msgspec.to_builtins(self.config)
        del config["secret"]
        counts = {"delivered": self.delivered, "failed": self.failed, "lost": self.lost}
        return {
            **config,
            "id": self.id,
            "state": self.state,
            "headers": sorted(self.config.headers),
            **counts,
        }

    def add_result(self, now_s: float, *, is_delivered: bool) -> bool:
        """Count a delivery. Return whether the failures exceed the budget."""
        self.delivered += is_delivered
        self.failed += not is_delivered
        self.results.append((now_s, is_delivered))
        while self.results and self.results[0][0] <= now_s - BUDGET_S:
            self.results.popleft()
        failures = sum(not success for _, success in self.results)
        has_bad_ratio = len(self.results) >= DELIVERIES_MIN and failures > FAILED_RATIO_MAX * len(
            self.results
        )
        return failures > FAILURES_MAX or has_bad_ratio


@dataclass
class Drains:
    now_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    take_fault: Callable[[str], bool]
    is_paused: Callable[[], bool] = lambda: False
    """Returns whether sending is paused."""
    seed: str = ""
    drains: dict[str, Drain] = field(default_factory=dict)
    notices: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))
    """Notices to the owners, the newest last."""
    _poster: Poster = field(default_factory=Poster)
    _retries: set[asyncio.Task[None]] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def add(self, config: DrainRequest) -> tuple[Drain, int | None]:
        """Add a drain, and send it test events. Returns the status of the response, if any."""
        drain = Drain(f"drn_{next(self._numbers)}", config)
        self.drains[drain.id] = drain
        return drain, await self.test(drain)

    async def test(self, drain: Drain) -> int | None:
        """Send test events, which do not count as a delivery."""
        traffic = _test_traffic(int(self.now_s() * 1e9))
        return await self._post(drain, encoded(forwarded(traffic, (), ""), traffic, drain.config.format))

    def resume(self, drain: Drain) -> None:
        """Make an errored drain active again, with a new budget."""
        drain.results.clear()
        drain.state = "active"

    async def forward(self, traffic: Traffic) -> None:
        if self.is_paused():
            return
        active = [drain for drain in self.drains.values() if drain.state == "active"]
        await asyncio.gather(*(self._forward(drain, traffic) for drain in active))

    async def close(self) -> None:
        """Give up the retries and close the connections."""
        for retry in self._retries:
            retry.cancel()
        await asyncio.gather(*self._retries, return_exceptions=True)
        await self._poster.close()

    async def _forward(self, drain: Drain, traffic: Traffic) -> None:
        resources = forwarded(traffic, drain.config.ordered_rules, self.seed + drain.id)
        if not resources:
            return
        body = encoded(resources, traffic, drain.config.format)
        if self.take_fault("drain-out-of-order") and drain.held is None:
            drain.held = body
            return
        await self._deliver(drain, body)
        if self.take_fault("drain-twice"):
            await self._deliver(drain, body)
        if drain.held is not None:
            held, drain.held = drain.held, None
            await self._deliver(drain, held)

    async def _deliver(self, drain: Drain, body: bytes) -> None:
        if await self._attempt(drain, body):
            return
        if drain.config.retries and len(self._retries) < RETRIES_WAITING_MAX:
            retry = asyncio.get_running_loop().create_task(self._retry(drain, body))
            # The event loop keeps only weak references to tasks.
            self._retries.add(retry)
            retry.add_done_callback(self._retries.discard)
        else:
            drain.lost += 1

    async def _retry(self, drain: Drain, body: bytes) -> None:
        for delay_s in itertools.islice(backoff_s(RETRY_FIRST_S, math.inf), drain.config.retries):
            await self.sleep(delay_s)
            if await self._attempt(drain, body):
                return
        drain.lost += 1

    async def _attempt(self, drain: Drain, body: bytes) -> bool:
        status = await self._post(drain, body)
        is_delivered = status is not None and HTTPStatus(200) <= status < HTTPStatus(300)
        if drain.add_result(self.now_s(), is_delivered=is_delivered) and drain.state == "active":
            drain.state = "errored"
            failures = sum(not success for _, success in drain.results)
            text = f"{failures} of {len(drain.results)} deliveries of the last hour failed"
            self.notices.append(
                {"at": self.now_s(), "drain": drain.id, "type": "drain-errored", "text": text}
            )
        return is_delivered

    async def _post(self, drain: Drain, body: bytes) -> int | None:
        """Send a body. Return the status of the response; `None` without a response."""
        config = drain.config
        encoding = ENCODINGS[config.format]
        headers = {**config.headers, "Content-Type": encoding.content_type, "User-Agent": "platform-drain"}
        if config.secret:
            headers[config.signature_header] = self._signature(config.secret, body)
        return await self._poster.post(config.url, body, headers)

    def _signature(self, secret: str, body: bytes) -> str:
        key = secret + "?" if self.take_fault("drain-wrong-signature") else secret
        return signature_of(key, body)


def _test_traffic(now_ns: int) -> Traffic:
    """Return a trace of one span, as in sample events."""
    attributes: dict[str, Value] = {
        "http.request.method": "GET",
        "url.path": "/",
        "http.response.status_code": 200,
    }
    half = now_ns.to_bytes(8, "big")
    span = Span(half, half, b"", "GET /", 2, 0, 10**6, attributes, None, 0)
    resource = Resource({"service.name": "platform-test"}, (PLATFORM_SCOPE, "1"), (span,))
    source = ServiceSpans(TEST_PROJECT, TEST_DEPLOYMENT, "production", "node", resource)
    return Traffic((source,), half, now_ns - 10**6)
