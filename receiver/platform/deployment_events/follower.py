"""Follows the events of live deployments: they send spans, or a reader watches their build.

Invariant: at most `platform.events.followed_max` deployments are followed. A failing deployment is tried
    again at growing intervals.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec

from receiver.engine.sql_text import compose
from receiver.engine.store import Store
from receiver.errors import OperatorError, ReceiverError, StoreTrouble
from receiver.logs import limited
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.event import Event
from receiver.platform.client.events import EventQuery, follow
from receiver.platform.deployment_events.fetcher import EventFetcher
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.settings import MIB, Platform

ROUND_S: Final = 60.0
"""Interval at which deployments are chosen, and at which events of finished builds are fetched."""
OPENED_S: Final = 1_800.0
"""Time after the last view of its page in which a deployment that is being built is followed."""
ROUNDS_MAX: Final = 16
"""Maximum number of rounds that skip a failing deployment."""
COLLECT_S: Final = 2.0
"""Time during which events are collected for one INSERT: the engine prefers few large INSERTs."""
COLLECTED_MAX: Final = 1_000
"""Maximum number of events that wait for an INSERT. The stream is read no faster than they are stored."""
COLLECTED_BYTES_MAX: Final = 16 * MIB
"""Size of these events as JSON above which no more are read: a line of a build log may have megabytes."""
LIVE_S: Final = 60
"""Age of the newest span up to which a deployment counts as live."""
Item = Event | ReceiverError | None
"""Item of a stream: an event, the error that ended the stream, or `None` at its end."""
_LIVE: Final = compose("""
SELECT toString(DeploymentId), max(Timestamp) AS newest FROM {table}
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}) AND startsWith(DeploymentId, 'dpl_')
GROUP BY DeploymentId
ORDER BY newest DESC, DeploymentId
LIMIT {limit:UInt64}
{short_settings}, max_threads = 1
""")


class Items(asyncio.Queue[Item]):
    """Events of a stream that are not stored yet, limited in number and size."""

    def __init__(self) -> None:
        super().__init__(COLLECTED_MAX)
        self._size_bytes = 0

    def full(self) -> bool:
        """Return whether `put` has to wait."""
        return super().full() or self._size_bytes >= COLLECTED_BYTES_MAX

    def _put(self, item: Item) -> None:
        super()._put(item)
        self._size_bytes += _size_bytes(item)

    def _get(self) -> Item:
        item = super()._get()
        self._size_bytes -= _size_bytes(item)
        return item


def _size_bytes(item: Item) -> int:
    return len(msgspec.json.encode(item.raw)) if isinstance(item, Event) else 0


class Follower:
    """Background task that follows live deployments."""

    def __init__(
        self, store: Store, fetcher: EventFetcher, settings: Callable[[], Platform], round_s: float = ROUND_S
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._settings = settings
        self._round_s = round_s
        self._task: asyncio.Task[None] | None = None
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._left_out: dict[str, tuple[int, int]] = {}
        """Failing deployment → rounds until the next try, and rounds after it if it fails."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop all tasks. The next start fetches again what was not stored."""
        tasks = [*([self._task] if self._task else []), *self._followed.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._fetcher.close()

    async def _run(self) -> None:
        while True:
            await self._round()
            await asyncio.sleep(self._round_s)

    async def _round(self) -> None:
        live = await self._live()
        self._left_out = {each: rounds for each, rounds in self._left_out.items() if each in live}
        for deployment in self._followed.keys() - live:
            self._followed[deployment].cancel()
        for deployment in live:
            if deployment not in self._followed and not self.waits(deployment):
                task = asyncio.create_task(self._follow(deployment))
                self._followed[deployment] = task
                task.add_done_callback(partial(self._ended, deployment))

    async def _live(self) -> list[str]:
        """Return the deployments to follow."""
        count_max = self._settings().events.followed_max
        if not (count_max and self._fetcher.is_on):
            return []
        try:
            sending = await self._fetcher.in_thread(
                partial(live_deployments, self._store, time.time(), count_max)
            )
        except StoreTrouble as trouble:
            limited.warning("deployment events", "live deployments cannot be listed", error=trouble.label)
            sending = []
        return list(dict.fromkeys((*self._fetcher.opened(OPENED_S), *sending)))[:count_max]

    def waits(self, deployment: str) -> bool:
        """Count a round, and return whether it skips a failing deployment."""
        rounds, next_rounds = self._left_out.get(deployment, (0, 1))
        if rounds:
            self._left_out[deployment] = (rounds - 1, next_rounds)
        return bool(rounds)

    def end_of(self, deployment: str, *, is_failed: bool) -> None:
        """Skip a failing deployment for twice as many rounds as the last time."""
        _, rounds = self._left_out.pop(deployment, (0, 1))
        if is_failed:
            self._left_out[deployment] = (rounds, min(rounds * 2, ROUNDS_MAX))

    def _ended(self, deployment: str, _task: asyncio.Task[None]) -> None:
        del self._followed[deployment]
        self.end_of(deployment, is_failed=bool(self._fetcher.progress_of(deployment).failure))

    async def _follow(self, deployment: str) -> None:
        # Not cancelled with this task, because a page may wait for it as well.
        await asyncio.wait([self._fetcher.start(deployment)])
        progress = self._fetcher.progress_of(deployment)
        # Its stream would end at once. The next round fetches again.
        if not progress.is_final and not progress.failure:
            await self._fetcher.attempt(deployment, partial(self._keep_stream, deployment))

    async def _keep_stream(self, deployment: str, client: PlatformClient) -> None:
        progress = self._fetcher.progress_of(deployment)
        since_ms, project = progress.since_ms(), progress.project
        queue = Items()
        stream = follow(client, deployment, EventQuery(since=since_ms))
        reader = asyncio.create_task(_read(stream, queue))
        try:
            while isinstance(item := await queue.get(), Event):
                batch, item = await _collected(item, queue)
                # Events before these are not stored under the new project yet: the next round fetches all.
                if self._fetcher.progress_of(deployment).project != project:
                    return
                await self._fetcher.keep(deployment, batch, client.now_ms())
                if not isinstance(item, Event):
                    break
        finally:
            reader.cancel()
        if isinstance(item, ReceiverError):
            raise item


async def _read(stream: AsyncGenerator[Event, None], queue: asyncio.Queue[Item]) -> None:
    try:
        async with aclosing(stream):
            async for event in stream:
                await queue.put(event)
    except ReceiverError as error:
        await queue.put(error)
    else:
        await queue.put(None)


async def _collected(first: Event, queue: asyncio.Queue[Item]) -> tuple[list[Event], Item]:
    """Return an event with those that follow soon, and the end of the stream if it follows, too."""
    batch = [first]
    await asyncio.sleep(COLLECT_S)
    while not queue.empty():
        item = queue.get_nowait()
        if not isinstance(item, Event):
            return batch, item
        batch.append(item)
    return batch, first


def live_deployments(store: Store, now_s: float, count_max: int) -> list[str]:
    """Return the deployments that sent the newest spans."""
    bounds = {"from_ns": int((now_s - LIVE_S) * 1e9), "limit": count_max}
    return [str(deployment) for deployment, _ in store.rows(_LIVE, bounds)]


def follower_for(
    store: Store,
    configured: Callable[[], Platform],
    records: PlatformRecords,
    has_tables: Callable[[], bool],
    on_disabled: Callable[[], None],
) -> tuple[EventFetcher, Follower]:
    """Return the fetcher for open pages, and the follower of live deployments, which shares it.

    `on_disabled`: called after each answer that the configuration of the integration is disabled.
    """

    def platform() -> Platform:
        settings = configured()
        return settings if settings.token else _of_installation(settings, records.installations)

    fetcher = EventFetcher(store, platform, has_tables, records.deployments.project)
    fetcher.on_disabled = on_disabled
    return fetcher, Follower(store, fetcher, platform)


def _of_installation(settings: Platform, installations: Installations) -> Platform:
    """Return the settings with token and team of the newest active installation, if there is one."""
    for each in installations.all():
        try:
            token = installations.token(each.id) if each.state == "active" else ""
        # The page of the platform shows a token that cannot be read.
        except (OSError, OperatorError):
            continue
        if token:
            return msgspec.structs.replace(settings, token=token, team=each.team_id)
    return settings
