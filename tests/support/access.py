"""Receiver whose API and pages have users of each role, over a store that is not reachable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.access import COOKIE, LOGIN
from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.rollup import RollupRoutes
from receiver.console.api.routes import Api
from receiver.console.api.sessions import session_value
from receiver.console.api.spool import SpoolSpace
from receiver.console.application import operator_application
from receiver.console.queries.rollup.derivation import Closing
from receiver.dead_letters.replay import Replayer
from receiver.engine.store import Parameters, Store
from receiver.errors import StoreTrouble
from receiver.platform.feature import extension_of
from receiver.settings import Access, Platform, Role, User
from tests.support.fake_clickhouse import MemoryStore
from tests.support.receiver_facts import NO_PLATFORM, facts_of

Client = TestClient[web.Request, web.Application]
Headers = dict[str, str]

KEY = bytes(range(32))
VIEWER, OPERATOR, ADMIN = (
    User(name=name, token=f"token of {name}".ljust(16, "."), role=role)
    for name, role in zip(("vera", "otto", "ada"), get_args(Role), strict=True)
)
USERS = Access(user=(VIEWER, OPERATOR, ADMIN))


class NoStore(MemoryStore):
    """Store that is not reachable, so that each page shows an error in its frame."""

    def lines(self, statement: str, _parameters: Parameters | None = None) -> Iterator[bytes]:
        raise StoreTrouble(f"no answer to {len(statement)} characters", code=210, name="NETWORK_ERROR")

    def rows(self, statement: str, _parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        return [(line,) for line in self.lines(statement)]


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
) -> AsyncIterator[Client]:
    """Start the API and the pages with these users.

    `store`: in place of a store that is not reachable. Without a replayer, dead letters cannot be replayed.
    `port`: any free port by default.
    """
    store = store or NoStore()
    with ThreadPoolExecutor(4) as pool:
        api = Api(
            store,
            lambda: token,
            dict,
            dict,
            dict,
            pool,
            pool,
            SpoolSpace(directory, 0, lambda: 0),
            access=lambda: access,
            session_key=KEY,
            allows_sql=True,
        )
        letters = DeadLetterRoutes(replayer, pool)  # type: ignore[arg-type]  # without it, its handlers fail
        rollup = RollupRoutes(store, lambda: Closing(0, 0), is_on=False, wake=lambda: None, pool=pool)
        facts = facts_of(directory, pool, platform)
        application = operator_application(api, letters, rollup, facts, extension_of(facts.platform))
        async with TestClient(TestServer(application, port=port)) as client:
            yield client


def bearer(user: User) -> Headers:
    return {"Authorization": f"Bearer {user.token}"}


def session(user: User, key: bytes = KEY, lifetime_s: int = 60) -> Headers:
    return {"Cookie": f"{COOKIE}={session_value(key, user, int(time.time()) + lifetime_s)}"}


async def log_in(client: Client, token: str, next_url: str = "/", **headers: str) -> ClientResponse:
    form = {"token": token, "next": next_url}
    return await client.post(LOGIN, data=form, headers=headers, allow_redirects=False)
