"""Fetches the events of a deployment from the platform's API and stores them.

The first fetch begins with the oldest event, and later ones continue from the newest stored event, so events
are never left out between two stored ones. A restart of the process begins again, and stores nothing twice.

Invariant: a failing platform or store delays no page for longer than it wants to wait, and is described, not
    raised. The number of calls at once is limited.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from receiver.deployment_events.event_row import created_ms, ready_state
from receiver.deployment_events.event_table import store_events
from receiver.deployment_events.pause import Pause
from receiver.deployment_events.projects import Period, project_of
from receiver.engine.store import Store
from receiver.errors import ReceiverError, StoreTrouble
from receiver.logs import limited
from receiver.platform.connection import PlatformClient
from receiver.platform.errors import AnswerTooLarge, ConfigurationDisabled
from receiver.platform.event import Event
from receiver.platform.events import ALL_EVENTS, EventQuery, events
from receiver.settings import Platform

T = TypeVar("T")

FRESH_S: Final = 30.0
"""Time after a fetch in which pages do not fetch again."""
FETCHES_MAX: Final = 8
"""Maximum number of deployments that are fetched at once."""
ANSWER_EVENTS_MAX: Final = 5_000
"""Maximum number of events of one answer."""
ANSWERS_MAX: Final = 20
"""Maximum number of answers of one fetch. The next fetch continues where it ended."""
OVERLAP_MS: Final = 10_000
"""Time before the newest stored event from which a fetch asks again: events may become readable late."""
DEPLOYMENTS_MAX: Final = 1_000
"""Maximum number of deployments whose progress is kept. Others are fetched from the beginning again."""
FINAL_STATES: Final = {"READY", "ERROR", "CANCELED"}
_DEPLOYMENT: Final = re.compile(r"dpl_[A-Za-z0-9_-]{1,128}")


class FetchState(NamedTuple):
    """What a page says about the fetch of a deployment's events."""

    status: Literal["off", "fetched", "running", "failed"]
    """`off`: there is nothing to fetch from."""
    reason: str = ""
    """Why the events could not be fetched, or are not."""


NOT_CONFIGURED: Final = FetchState(
    "off",
    "set platform.base_url, and platform.token or install the integration: see the page /platform",
)
NOT_OF_PLATFORM: Final = FetchState("off", "the id is not one that the platform gives")


async def fetch_nothing(_deployment: str, _within: Period, _wait_s: float) -> FetchState:
    """Take the place of `EventFetcher.refresh` where there is no platform."""
    return NOT_CONFIGURED


@dataclass(slots=True)
class Progress:
    """What was fetched of a deployment since the process started."""

    project: str = ""
    newest_ms: int | None = None
    """Time of the newest stored event; `None` before the first."""
    state: str = ""
    """State of the deployment that the newest event about it reports."""
    fetched_at_s: float = -FRESH_S
    opened_at_s: float = -FRESH_S
    """When a page of the deployment was opened last."""
    failure: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether the deployment was built, or will not be."""
        return self.state.upper() in FINAL_STATES


class EventFetcher:
    """Fetches events, at most once at a time for each deployment."""

    def __init__(
        self,
        store: Store,
        settings: Callable[[], Platform],
        has_tables: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings`: called for each fetch, because a reload may change them."""
        self._store = store
        self._settings = settings
        self._has_tables = has_tables
        self._clock = clock
        self._progress: OrderedDict[str, Progress] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._pause = Pause(clock)
        # One thread: INSERTs of the same event must not overtake each other, and spans go first.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deployment-events")

    @property
    def is_on(self) -> bool:
        """Return whether a platform is configured, and events can be stored."""
        platform = self._settings()
        return bool(platform.base_url and platform.token) and self._has_tables()

    def connect(self) -> PlatformClient | None:
        """Return a client of the platform; `None` if there is none, or if its calls are paused."""
        platform = self._settings()
        if not (self.is_on and self._pause.may_call()):
            return None
        return PlatformClient(
            platform.base_url,
            platform.token,
            team=platform.team,
            slug=platform.slug,
            timeout_s=platform.timeout_s,
        )

    def progress_of(self, deployment: str) -> Progress:
        """Return what was fetched of a deployment."""
        progress = self._progress.setdefault(deployment, Progress())
        self._progress.move_to_end(deployment)
        if len(self._progress) > DEPLOYMENTS_MAX:
            self._progress.popitem(last=False)
        return progress

    def opened(self, age_s_max: float) -> list[str]:
        """Return the deployments with a page that was opened lately, whose build has not ended."""
        since_s = self._clock() - age_s_max
        return [
            deployment
            for deployment, progress in reversed(self._progress.items())
            if progress.opened_at_s >= since_s and not progress.is_final and not progress.failure
        ]

    async def refresh(self, deployment: str, within: Period, wait_s: float) -> FetchState:
        """Fetch for a page unless that happened lately, and wait for the end for at most this long.

        `within`: when the deployment has spans, which name its project.
        """
        platform = self._settings()
        if not (platform.base_url and platform.token):
            return NOT_CONFIGURED
        if not _DEPLOYMENT.fullmatch(deployment):
            return NOT_OF_PLATFORM
        progress = self.progress_of(deployment)
        progress.opened_at_s = self._clock()
        if deployment not in self._running and self._clock() - progress.fetched_at_s >= FRESH_S:
            if len(self._running) >= FETCHES_MAX:
                return FetchState("failed", f"{FETCHES_MAX} other deployments are being fetched")
            self.start(deployment, within)
        if task := self._running.get(deployment):
            await asyncio.wait([task], timeout=wait_s)
            if not task.done():
                return FetchState("running")
        return FetchState("failed", progress.failure) if progress.failure else FetchState("fetched")

    def start(self, deployment: str, within: Period) -> asyncio.Task[None]:
        """Fetch and store the events since the last fetch, unless that runs. The progress has a failure."""
        task = self._running.get(deployment)
        if task is None:
            fetch = self.attempt(deployment, partial(self._fetch, deployment, within))
            task = self._running[deployment] = asyncio.create_task(fetch)
            task.add_done_callback(lambda _: self._running.pop(deployment))
        return task

    async def attempt(
        self, deployment: str, call: Callable[[PlatformClient], Coroutine[Any, Any, None]]
    ) -> None:
        """Make calls for a deployment, and keep the reason if they fail."""
        progress = self.progress_of(deployment)
        try:
            client = self.connect()
            if client is None:
                progress.failure = self._pause.reason or "the tables of the store are not ready yet"
                return
            async with client:
                await call(client)
        except ConfigurationDisabled as error:
            self._pause.begin(str(error))
            progress.failure = str(error)
        except ReceiverError as error:
            progress.failure = error.label if isinstance(error, StoreTrouble) else str(error)
            limited.warning("deployment events", "events cannot be fetched", error=progress.failure)
        else:
            progress.failure = ""
            self._pause.end()
        finally:
            progress.fetched_at_s = self._clock()

    async def _fetch(self, deployment: str, within: Period, client: PlatformClient) -> None:
        progress = self.progress_of(deployment)
        if not progress.project:
            progress.project = await self.in_thread(partial(project_of, self._store, deployment, within))
            if progress.project:
                # Events that were stored without the project are stored again with it.
                progress.newest_ms = None
        since_ms = None if progress.newest_ms is None else max(0, progress.newest_ms - OVERLAP_MS)
        async for answer in answers(client, deployment, since_ms):
            await self.keep(deployment, answer)

    async def keep(self, deployment: str, found: Sequence[Event]) -> None:
        """Store events that follow those that are stored."""
        progress = self.progress_of(deployment)
        raw = [event.raw for event in found]
        fetched_ms = int(time.time() * 1_000)
        await self.in_thread(
            partial(store_events, self._store, progress.project, deployment, raw, fetched_ms)
        )
        if found:
            progress.newest_ms = max(int(max(event.created for event in found)), progress.newest_ms or 0)
            states = [(created_ms(event), state) for event in raw if (state := ready_state(event))]
            progress.state = max(states)[1] if states else progress.state

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a function that asks the store, which blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Cancel what runs. What was not stored is fetched again."""
        for task in list(self._running.values()):
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


async def answers(
    client: PlatformClient, deployment: str, since_ms: int | None
) -> AsyncIterator[Sequence[Event]]:
    """Yield the events from a time on, oldest first, in answers of limited size."""
    limit = ANSWER_EVENTS_MAX
    for _ in range(ANSWERS_MAX):
        query = EventQuery(direction="forward", limit=limit, since=since_ms)
        try:
            answer = await events(client, deployment, query)
        except AnswerTooLarge:
            if limit in {1, ALL_EVENTS}:
                raise
            limit = max(1, limit // 10)
            continue
        yield answer
        if limit == ALL_EVENTS or len(answer) < limit:
            return
        newest_ms = int(max(event.created for event in answer))
        # All events of the answer have one time, or the platform does not apply `since` to them.
        if since_ms is not None and newest_ms <= since_ms:
            limit = ALL_EVENTS
        since_ms = newest_ms
