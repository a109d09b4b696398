"""Receiver whose API and pages have users of each role, over a store that is not reachable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.access import COOKIE, LOGIN
from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.rollup import RollupRoutes
from receiver.console.api.sessions import session_value
from receiver.console.application import operator_application
from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.span_metrics.follower import Follower
from receiver.console.queries.span_metrics.series import SpanCounts
from receiver.console.tools.prometheus import SpanMetricsRoutes
from receiver.dead_letters.replay import Replayer
from receiver.engine.store import Store
from receiver.platform.feature import extension_of
from receiver.settings import Access, Platform, Role, User
from tests.support.api import FailingStore, api_over
from tests.support.receiver_facts import NO_PLATFORM, facts_of

Client = TestClient[web.Request, web.Application]
Headers = dict[str, str]

KEY = bytes(range(32))
VIEWER, OPERATOR, ADMIN = (
    User(name=name, token=f"token of {name}".ljust(16, "."), role=role)
    for name, role in zip(("vera", "otto", "ada"), get_args(Role), strict=True)
)
USERS = Access(user=(VIEWER, OPERATOR, ADMIN))


@asynccontextmanager
async def receiver_with(  # noqa: PLR0913 - each part of a receiver
    directory: Path,
    access: Access = USERS,
    token: str = "",
    *,
    store: Store | None = None,
    replayer: Replayer | None = None,
    platform: Platform = NO_PLATFORM,
    port: int | None = None,
    span_counts: SpanCounts | None = None,
) -> AsyncIterator[Client]:
    """Start the API and the pages with these users.

    `store`: in place of a store that is not reachable. Without a replayer, dead letters cannot be replayed.
    `port`: any free port by default. `span_counts`: the metrics of spans; `None`: they are off.
    """
    store = store or FailingStore(210, "NETWORK_ERROR")
    access_parts = {"access": lambda: access, "session_key": KEY, "allows_sql": True}
    with api_over(store, token=lambda: token, **access_parts) as api:
        pool = api.pool
        letters = DeadLetterRoutes(replayer, pool)  # type: ignore[arg-type]  # without it, its handlers fail
        rollup = RollupRoutes(store, lambda: Closing(0, 0), is_on=False, wake=lambda: None, pool=pool)
        follower = Follower(store, directory / "span-metrics", 2_000)
        follower.counts = span_counts
        span_metrics = SpanMetricsRoutes(follower, 2_000, span_counts is not None, pool)
        facts = facts_of(directory, pool, platform)
        application = operator_application(
            api, letters, (rollup, span_metrics), facts, extension_of(facts.platform)
        )
        async with TestClient(TestServer(application, port=port)) as client:
            yield client


def bearer(user: User) -> Headers:
    return {"Authorization": f"Bearer {user.token}"}


def session(user: User, key: bytes = KEY, lifetime_s: int = 60) -> Headers:
    return {"Cookie": f"{COOKIE}={session_value(key, user, int(time.time()) + lifetime_s)}"}


async def log_in(client: Client, token: str, next_url: str = "/", **headers: str) -> ClientResponse:
    form = {"token": token, "next": next_url}
    return await client.post(LOGIN, data=form, headers=headers, allow_redirects=False)
