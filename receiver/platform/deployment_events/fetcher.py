"""Fetches the events of a deployment from the platform's API and stores them.

The first fetch begins with the oldest event. Later fetches continue from the newest stored event, also after
a restart, so there is no gap between stored events. An event with a time in the future does not move that
point beyond the present. Deployments take turns after each INSERT.

Invariant: a failing platform or store delays no page for longer than the limit of the page. Its error is
    returned as text, not raised. The number of concurrent calls is limited.
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
from typing import Any, Final, TypeVar

from receiver.backoff import backoff_s
from receiver.console.ui.event_refresh import NOT_CONFIGURED, FetchState
from receiver.engine.store import Store
from receiver.errors import ReceiverError, StoreTrouble
from receiver.logs import limited
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import AnswerTooLarge, ConfigurationDisabled
from receiver.platform.client.event import Event
from receiver.platform.client.events import ALL_EVENTS, FINAL_STATES, EventQuery, events
from receiver.platform.client.seen_events import OVERLAP_MS
from receiver.platform.deployment_events.event_table import (
    ROWS_MAX,
    created_ms,
    ready_state,
    store_events,
    stored_of,
)
from receiver.settings import Platform

T = TypeVar("T")

FRESH_S: Final = 30.0
"""Time after a fetch during which pages do not fetch again."""
FETCHES_MAX: Final = 8
"""Maximum number of deployments that are fetched at once."""
ANSWER_EVENTS_MAX: Final = 5_000
"""Maximum number of events of one answer."""
ANSWERS_MAX: Final = 20
"""Maximum number of answers of one fetch. The next fetch continues where it ended."""
DEPLOYMENTS_MAX: Final = 1_000
"""Maximum number of deployments whose progress is in memory."""
PAUSE_FIRST_S: Final = 60.0
PAUSE_S_MAX: Final = 3_600.0
_DEPLOYMENT: Final = re.compile(r"dpl_[A-Za-z0-9_-]{1,128}")
NOT_OF_PLATFORM: Final = FetchState("off", "the id is not one that the platform gives")
NOT_OF_PROJECTS: Final = FetchState(
    "off", "the platform has not reported that the deployment belongs to a project of this user"
)


class Pause:
    """Pause of all calls to the platform while the configuration of the integration is disabled there.

    Every call fails until an owner of the team acts, so single calls check the state at growing intervals.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lengths_s = backoff_s(PAUSE_FIRST_S, PAUSE_S_MAX)
        self._length_s = 0.0
        self._until_s = 0.0
        self._is_trying = False
        self.reason = ""
        """Why calls are paused; empty if they are not."""

    def may_call(self) -> bool:
        """Return whether a call may be sent now. During a pause this claims the next try."""
        if not self.reason:
            return True
        if self._clock() < self._until_s:
            return False
        # Set before the response arrives, because the calls of other deployments wait for it.
        self._until_s = self._clock() + self._length_s
        self._is_trying = True
        return True

    def begin(self, reason: str) -> None:
        """Pause, for twice as long as the last time."""
        # The failing call was sent before the pause began.
        if self.reason and not self._is_trying:
            return
        self._is_trying = False
        self._length_s = next(self._lengths_s)
        self._until_s = self._clock() + self._length_s
        self.reason = reason

    def end(self) -> None:
        """End the pause: a call succeeded."""
        self._lengths_s, self.reason = backoff_s(PAUSE_FIRST_S, PAUSE_S_MAX), ""


@dataclass(slots=True)
class Progress:
    project: str = ""
    newest_ms: int | None = None
    """Time of the newest stored event that is not in the future; `None` before the first."""
    state: str = ""
    """State of the deployment by its newest event with a state."""
    fetched_at_s: float = -FRESH_S
    opened_at_s: float = -FRESH_S
    """Time at which a page of the deployment was last opened."""
    failure: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether the build of the deployment has ended."""
        return self.state.upper() in FINAL_STATES

    def since_ms(self) -> int | None:
        """Return the time from which to fetch; `None` for the beginning."""
        return None if self.newest_ms is None else max(0, self.newest_ms - OVERLAP_MS)


class EventFetcher:
    """Fetches events, with at most one fetch for each deployment at a time."""

    def __init__(
        self,
        store: Store,
        settings: Callable[[], Platform],
        has_tables: Callable[[], bool],
        project_of: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings`: called for each fetch, because a reload may change them.

        `project_of`: returns the project of a deployment that the platform has reported, or an empty text.
        """
        self._store = store
        self._settings = settings
        self._has_tables = has_tables
        self._project_of = project_of
        self._clock = clock
        self.on_disabled: Callable[[], None] = lambda: None
        """Called after each answer that the configuration of the integration is disabled."""
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
        progress = self._progress.setdefault(deployment, Progress())
        self._progress.move_to_end(deployment)
        if len(self._progress) > DEPLOYMENTS_MAX:
            self._progress.popitem(last=False)
        return progress

    def opened(self, age_s_max: float) -> list[str]:
        """Return the deployments whose page was opened within this time and whose build has not ended."""
        since_s = self._clock() - age_s_max
        return [
            deployment
            for deployment, progress in reversed(self._progress.items())
            if progress.opened_at_s >= since_s and not progress.is_final and not progress.failure
        ]

    async def refresh(self, deployment: str, wait_s: float, projects: Sequence[str] = ()) -> FetchState:
        """Fetch for a page, unless the last fetch is recent, and wait for the end for at most this long.

        `projects`: those of the user; empty means all. The user must not learn which other deployments exist.
        """
        platform = self._settings()
        if not (platform.base_url and platform.token):
            return NOT_CONFIGURED
        if not _DEPLOYMENT.fullmatch(deployment):
            return NOT_OF_PLATFORM
        if projects and self._project_of(deployment) not in projects:
            return NOT_OF_PROJECTS
        progress = self.progress_of(deployment)
        progress.opened_at_s = self._clock()
        if deployment not in self._running and self._clock() - progress.fetched_at_s >= FRESH_S:
            if len(self._running) >= FETCHES_MAX:
                return FetchState("failed", f"{FETCHES_MAX} other deployments are being fetched")
            self.start(deployment)
        if task := self._running.get(deployment):
            await asyncio.wait([task], timeout=wait_s)
            if not task.done():
                return FetchState("running")
        return FetchState("failed", progress.failure) if progress.failure else FetchState("fetched")

    def start(self, deployment: str) -> asyncio.Task[None]:
        """Start to fetch and store the events since the last fetch, unless a fetch runs."""
        task = self._running.get(deployment)
        if task is None:
            fetch = self.attempt(deployment, partial(self._fetch, deployment))
            task = self._running[deployment] = asyncio.create_task(fetch)
            task.add_done_callback(lambda _: self._running.pop(deployment))
        return task

    async def attempt(
        self, deployment: str, call: Callable[[PlatformClient], Coroutine[Any, Any, None]]
    ) -> None:
        """Make calls for a deployment, and record the reason if they fail."""
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
            self.on_disabled()
            progress.failure = str(error)
        except ReceiverError as error:
            progress.failure = error.label if isinstance(error, StoreTrouble) else str(error)
            limited.warning("deployment events", "events cannot be fetched", error=progress.failure)
        else:
            progress.failure = ""
            self._pause.end()
        finally:
            progress.fetched_at_s = self._clock()

    async def _fetch(self, deployment: str, client: PlatformClient) -> None:
        progress, project = self.progress_of(deployment), self._project_of(deployment)
        if progress.project != project or progress.newest_ms is None:
            # Events that were stored without the project are stored again with it.
            progress.project = project
            progress.newest_ms, progress.state = await self.in_thread(
                partial(stored_of, self._store, project, deployment, client.now_ms())
            )
        async for answer in answers(client, deployment, progress.since_ms()):
            await self.keep(deployment, answer, client.now_ms())

    async def keep(self, deployment: str, new_events: Sequence[Event], now_ms: int) -> None:
        """Store events that follow the stored ones. `now_ms`: time of the platform."""
        progress = self.progress_of(deployment)
        # The oldest first, because a restart continues from the newest stored event.
        ordered = sorted(new_events, key=lambda event: event.created)
        for at in range(0, len(ordered), ROWS_MAX):
            batch = ordered[at : at + ROWS_MAX]
            raw, fetched_ms = [event.raw for event in batch], int(time.time() * 1_000)
            # One call for each INSERT, because the calls of other deployments wait for the same thread.
            await self.in_thread(
                partial(store_events, self._store, progress.project, deployment, raw, fetched_ms)
            )
            progress.newest_ms = max(int(min(batch[-1].created, now_ms)), progress.newest_ms or 0)
            states = [ready_state(event) for event in raw if created_ms(event) <= now_ms]
            progress.state = next(filter(None, reversed(states)), progress.state)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a function that queries the store, which blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Cancel the running fetches. The next start fetches again what was not stored."""
        for task in list(self._running.values()):
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


async def answers(
    client: PlatformClient, deployment: str, since_ms: int | None
) -> AsyncIterator[Sequence[Event]]:
    """Yield the events since a time, oldest first, in responses of limited size."""
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
        newest_ms = min(int(max(event.created for event in answer)), client.now_ms())
        # All events of the response have the same time, or the platform ignores `since`.
        if since_ms is not None and newest_ms <= since_ms:
            limit = ALL_EVENTS
        since_ms = newest_ms
