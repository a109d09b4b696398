"""Store process: starts the API, reads ledger and deduplication window, applies the schema, runs the writer.

Invariant: the process starts and serves health and ledger even while the store is unavailable. When stopped,
it inserts sealed segments within its grace period; the remaining segments stay in the journal. A failure of
the writer ends the process.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from receiver import transcode
from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.query_queue import QUERIES_MAX
from receiver.api.rollup import RollupRoutes
from receiver.api.routes import REQUESTS_MAX, Api
from receiver.api.sessions import load_key
from receiver.api.spool import SpoolSpace
from receiver.channel import Reload, Start
from receiver.clickhouse_http.endpoint import ClickHouseEndpoint
from receiver.clock import NOTE_NAME
from receiver.config.load import Loaded
from receiver.dead_letters.listing import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.engine import schema
from receiver.engine.clock_check import Clock
from receiver.engine.error_codes import SLOW, Fault, fault_of
from receiver.engine.expiry import Expiry
from receiver.engine.opening import claimed, open_store
from receiver.errors import DeadLetterConflict, DiskTrouble, OperatorError, StoreTrouble, place_and_reason
from receiver.journal.digest_key import DigestKey
from receiver.journal.segments import Journal
from receiver.ledger.balance import Backlog, LiveBalanceSource
from receiver.ledger.ledger import Ledger, is_first_on
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import SegmentId
from receiver.query import ledger as ledger_query
from receiver.redelivery.window import Window, drains_without_dedupe
from receiver.rollup.derivation import Closing
from receiver.store_process.deployment_events import follower_for
from receiver.store_process.ledger_metrics import LedgerMetrics
from receiver.store_process.metrics import newer_segments_text, report
from receiver.store_process.operator_routes import operator_application
from receiver.store_process.platform_work import PlatformWork
from receiver.store_process.ports import Ports
from receiver.store_process.rollup_thread import RollupThread
from receiver.store_process.stop_signal import StopSignal
from receiver.store_process.watchdog import MARGIN_S, Watchdog
from receiver.ui.admin_port import read_admin_port
from receiver.ui.facts import ReceiverFacts
from receiver.writer.backoff import SLOWER_CEILING_S, SLOWER_FIRST_S, Delays, backoff_s
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress, WaitingUnits
from receiver.writer.writer import Writer

T = TypeVar("T")

ROLLUP_BACKLOG_S = 5.0
"""Age of the oldest waiting segment above which no hour is rolled up."""
CLOSE_S = 3.0
"""Part of the grace period reserved for closing the engine."""


async def start_store_process(start: Start, metrics: Metrics) -> StoreWork:
    """Claim the data directory, open the store, start the writer, serve the API."""
    resources = ExitStack()
    try:
        # Entered first, so closed last: the lock is held until the engine is closed.
        resources.enter_context(claimed(Path(start.settings.data_dir)))
        # In a thread: opening the engine may take long, and the process sends reports meanwhile.
        work = await asyncio.to_thread(StoreWork, start, metrics, resources)
        await work.serve(start.listen_fd, start.sibling_fds)
    # Also when cancelled: the next process waits for the lock.
    except BaseException:
        resources.close()
        raise
    return work


class StoreWork:
    """The store, its writer and its API."""

    def __init__(self, start: Start, metrics: Metrics, resources: ExitStack) -> None:
        settings, data_dir = start.settings, Path(start.settings.data_dir)
        self._settings, self._api_token, self._access = settings, settings.api_token, settings.api
        self._metrics, self._resources = metrics, resources
        metrics.set("backlog_bytes_max", settings.journal.bytes_max)
        self._journal = Journal(data_dir / "journal")
        self._dead_letter_list = DeadLetterList(data_dir)
        self._dead_letters = self._dead_letter_list.dead
        # Before the writer or a replay can create files that `tidy` would delete.
        self._dead_letters.tidy()
        self._platform, self._progress = PlatformWork(settings), Progress()
        self._stop_signal = StopSignal(time.monotonic)
        self._watchdog = Watchdog(time.monotonic, silence_s_max=settings.store.insert_timeout_s + MARGIN_S)
        self._drains_without_dedupe = drains_without_dedupe(settings)
        self._window: Window | None = None
        self._balances: LiveBalanceSource | None = None
        self._has_tables = False
        # Asked before the writer creates the directory whose absence is the answer.
        self._is_first = is_first_on(data_dir)
        self._failure: BaseException | None = None
        self._clock = Clock(data_dir / NOTE_NAME)
        self._store = open_store(settings, disk_free_min=self._disk_free_min)
        resources.callback(self._store.close)
        self._expiry = Expiry(self._store, self._clock)
        # Two pools, so that long answers cannot take the threads of short requests.
        self._pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="question")
        self._stream_pool = ThreadPoolExecutor(QUERIES_MAX, thread_name_prefix="answer")
        self._ledger_metrics = LedgerMetrics(self._pool, metrics)
        # A daemon thread, so that a writer that hangs in the engine cannot prevent the exit.
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._ports = Ports(settings.limits, metrics)
        self._facts = ReceiverFacts(
            Loaded(settings, start.origins, ()),
            self._progress,
            self.health,
            Journal(data_dir / "journal").bytes_total,
            self._ledger_answer,
            self._dead_letter_list.entries,
            self._dead_letter_list.find,
            partial(read_admin_port, settings.admin_listen),
            self._pool,
            self._platform.records,
        )
        self._rollup = RollupThread(self._store, self._closing, self._keeps_up, is_on=settings.store.rollup)
        self._follower = follower_for(self._store, self._facts, lambda: self._has_tables)

    async def serve(self, listen_fd: int, clickhouse_fds: tuple[int, ...]) -> None:
        """Start the writer and serve the API on the inherited sockets. `clickhouse_fds`: none or one."""
        api = Api(
            store=self._store,
            token=lambda: self._api_token,
            health=self.health,
            ledger=self._ledger_answer,
            schema=lambda: schema.status(self._store, transcode.SCHEMAS, *schema.wanted(self._settings)),
            pool=self._pool,
            stream_pool=self._stream_pool,
            space=self._spool_space(),
            hosts=self._settings.api_hosts,
            allows_sql=self._settings.api.sql,
            access=lambda: self._access,
            session_key=load_key(Path(self._settings.data_dir)),
        )
        dead_letter_routes = DeadLetterRoutes(self._replays(), self._pool)
        rollup_routes = RollupRoutes(
            self._store, self._closing, self._settings.store.rollup, self._rollup.wake, self._pool
        )
        application = operator_application(api, dead_letter_routes, rollup_routes, self._facts)
        await self._ports.serve("api", application, listen_fd)
        endpoint = ClickHouseEndpoint(
            api, lambda: self._access.clickhouse_token, self._settings.store.database
        )
        for clickhouse_fd in clickhouse_fds:
            await self._ports.serve("clickhouse", endpoint.application(), clickhouse_fd)
        # The API is served first, so that health checks work while the ledger is read.
        self._thread.start()
        self._rollup.start()
        self._follower.start()
        self._platform.start()

    def _spool_space(self) -> SpoolSpace:
        return SpoolSpace(
            Path(self._settings.data_dir), self._settings.limits.api_spool_bytes_max, self._disk_free_min
        )

    async def reload(self, message: Reload) -> None:
        """Apply the users and each drain's `dedupe`. A new store, retention or window needs a restart."""
        settings = message.settings
        self._api_token, self._access = settings.api_token, settings.api
        self._facts.loaded = Loaded(settings, message.origins, ())
        self._drains_without_dedupe = drains_without_dedupe(settings)
        # Without a window the writer has not read it yet, and opens it with the drains stored above.
        if self._window is not None:
            self._window.exempt_drains = self._drains_without_dedupe

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Do nothing: the API has one process."""

    async def seal(self) -> None:
        """Do nothing: the store process has no open segment."""

    def health(self) -> dict[str, str]:
        """Return the checks of store and writer. Raises the writer's exception, or `WriterHangs`."""
        # Raising is how the writer's thread ends the process: health is asked for every second.
        if self._failure is not None:
            raise self._failure
        self._watchdog.check()
        report(self._progress, self._dead_letters, self._metrics)
        self._platform.report(self._metrics)
        self._metrics.set("rollup_lag_seconds", self._rollup.lag_s())
        # The ledger is read in the writer's thread and may not be ready yet.
        if self._balances is not None:
            self._ledger_metrics.tick(self._balances.balance)
        return {
            "store": self._progress.trouble,
            "writer": self._progress.stall_reason,
            "redelivery": self._progress.window_trouble,
            "ledger": self._ledger_metrics.trouble,
            "clock": self._expiry.warning,
            "journal": newer_segments_text(self._journal),
        }

    def _ledger_answer(self, query: Mapping[str, str]) -> ledger_query.Answer:
        """Answer a ledger query. Called in a thread of the pool."""
        balances = self._require_balances()
        row_lifetime_hours = ledger_query.row_lifetime_hours(self._settings.store)
        ledger_filter = ledger_query.parse_ledger_query(
            query, now_s=time.time(), row_lifetime_hours=row_lifetime_hours
        )
        return ledger_query.ledger(balances, lambda: self._store, ledger_filter)

    def _require_balances(self) -> LiveBalanceSource:
        if self._balances is None:
            raise DiskTrouble("ledger is still being read; retry in a few seconds")
        return self._balances

    async def stop(self) -> None:
        """Close the API, insert sealed segments within the grace period and close the engine."""
        await self._ports.close()
        await self._follower.close()
        # Before the pool is shut down, because a health check may still come and would submit to it.
        self._ledger_metrics.stop()
        # The rest of the grace period is reserved for closing the engine.
        grace_s = max(1.0, self._settings.limits.stop_grace_s - CLOSE_S)
        self._stop_signal.stop(grace_s)
        # In threads, all of these: they block, and the event loop must keep sending reports.
        await asyncio.to_thread(self._rollup.stop)
        await asyncio.to_thread(self._platform.stop)
        await asyncio.to_thread(self._thread.join, grace_s)
        await asyncio.to_thread(self._rollup.join, 1.0)
        # After the writer, which uses the engine; also if it hangs, because the grace period is over.
        await asyncio.to_thread(self._resources.close)
        # Do not wait for the pools: a query that hangs in the engine must not delay the exit.
        self._pool.shutdown(wait=False)
        self._stream_pool.shutdown(wait=False)

    def _write(self) -> None:
        """Body of the writer's thread."""
        try:
            # The ledger first: it recorded how long the log of the window must be, so a loss is noticed.
            ledger = self._open_with_retries("ledger", self._open_ledger)
            self._window = self._open_with_retries("redelivery window", partial(self._open_window, ledger))
            self._balances = LiveBalanceSource(ledger, Backlog(Path(self._settings.data_dir) / "journal"))
            writer = self._writer(self._window, ledger)
            # Before the schema, because applying it may wait for the store for days.
            writer.run_maintenance()
            self._apply_schema(writer)
            writer.run()
        # Raised out of a sleep or a retry. Segments that are left stay in the journal.
        except Stopping:
            return
        except BaseException as failure:  # noqa: BLE001 - `health` raises it, and the process ends
            self._failure = failure
        finally:
            self._watchdog.stop()

    def _apply_schema(self, writer: Writer) -> None:
        """Apply the schema, retrying for as long as the store is unavailable or used by another process."""
        progress, delays = self._progress, Delays(random.random)
        while fault := self._schema_fault():
            # No writer runs yet, so the backlog would otherwise be reported as empty.
            WaitingUnits(self._journal.sealed(), progress).report(time.time())
            limited.warning("writer: schema", "schema cannot be applied yet", error=progress.trouble)
            writer.run_maintenance()
            self._stop_signal.sleep(next(delays.slow if fault in SLOW else delays.fast))
        progress.trouble = ""
        self._has_tables = True

    def _schema_fault(self) -> Fault | None:
        """Apply the schema once. Returns the class of the error, or `None` if the tables are up to date."""
        progress, wanted = self._progress, schema.wanted(self._settings)
        try:
            schema.apply(self._store, transcode.SCHEMAS, *wanted, sleep=self._stop_signal.sleep)
            # At the start only: a trial table of our own cannot be in use now.
            self._store.forget_trials()
        except StoreTrouble as trouble:
            fault, error = fault_of(trouble), trouble.label
            progress.record_failure(fault, error)
        # Not raised: a wrong table must not end the process, which also serves health and ledger.
        except OperatorError as operator_error:
            fault, error = Fault.HOLD, str(operator_error)
        else:
            return None
        progress.trouble = f"schema: {error}"
        # Other errors are temporary and need no operator.
        if fault is Fault.HOLD:
            progress.alarm("schema", f"schema cannot be applied: {error}")
        return fault

    def _open_window(self, ledger: Ledger) -> Window:
        return Window(
            Path(self._settings.data_dir) / "redelivery",
            self._settings.redelivery,
            time.monotonic,
            exempt_drains=self._drains_without_dedupe,
            extent_min=ledger.window,
        )

    def _open_ledger(self) -> Ledger:
        root = Path(self._settings.data_dir) / "ledger"
        return Ledger(root, self._settings.ledger, time.time, is_first=self._is_first)

    def _open_with_retries(self, name: str, open_log: Callable[[], T]) -> T:
        """Open a log. Retries disk errors without limit, because no row may be stored without the log."""
        for delay_s in backoff_s(random.random, first_s=SLOWER_FIRST_S, ceiling_s=SLOWER_CEILING_S):
            try:
                return open_log()
            except OSError as os_error:
                error = place_and_reason(os_error)
                self._progress.trouble = f"{name} cannot be read: {error}"
                limited.error(f"writer: {name}", f"{name} cannot be read", error=error)
            self._stop_signal.sleep(delay_s)
        raise AssertionError("backoff delays ended; expected them to be infinite")

    def _writer(self, window: Window, ledger: Ledger) -> Writer:
        environment = Environment(
            now=time.time,
            sleep=self._stop_signal.sleep,
            jitter=random.random,
            repair_dir=Path(self._settings.data_dir) / "repair",
            retention_days=self._settings.store.retention_days,
            heartbeat=self._on_step,
        )
        return Writer(
            self._journal,
            self._store,
            core=transcode,
            window=window,
            ledger=ledger,
            dead=self._dead_letters,
            progress=self._progress,
            environment=environment,
        )

    def _replays(self) -> Replayer:
        """Return the replayer of dead letters. It decodes bodies with the settings from the start."""
        policy, data_dir = transcode.policy(self._settings), Path(self._settings.data_dir)
        digest_key = DigestKey(data_dir)
        limits = {drain.name: drain.body_bytes_max for drain in self._settings.drain}
        return Replayer(
            dead_letter_list=self._dead_letter_list,
            journal=data_dir / "journal",
            store=self._store,
            core=transcode,
            commit=lambda deliveries, segment: transcode.commit(
                policy, deliveries, segment, digest_key.load().secret
            ),
            footer=transcode.footer,
            body_bytes_max=lambda drain: limits.get(drain) or self._settings.limits.body_bytes_max,
            now=time.time,
            check=self._check_tables,
            on_replay=self._on_replay,
        )

    def _closing(self) -> Closing:
        return Closing(int(time.time()), self._settings.store.rollup_closing_age_s)

    def _keeps_up(self) -> bool:
        """Return whether the tables exist and no segment waits for the store."""
        is_late = self._progress.oldest_age_s(time.time()) > ROLLUP_BACKLOG_S
        return self._has_tables and not self._progress.trouble and not is_late

    def _check_tables(self) -> None:
        if not self._has_tables:
            raise DeadLetterConflict(
                "the store's tables are not known to be up to date yet; `/readyz?verbose` says why"
            )

    def _on_replay(self, segment: SegmentId) -> None:
        self._require_balances().ledger.record_replay(segment)

    def _on_step(self) -> None:
        """Callback that the writer runs between two steps."""
        self._watchdog.beat()
        self._expiry.check()

    def _disk_free_min(self) -> int:
        """Return the disk space that the engine must leave free for the journal and `disk_free_min`."""
        journal = self._settings.journal
        # The journal must be able to grow to its maximum, or the store could fill the disk and block
        # deliveries.
        return max(0, journal.bytes_max - self._journal.bytes_total()) + journal.disk_free_min


def _newer_segments_text(count: int) -> str:
    """Return the health text for segments of a newer version; empty if there are none."""
    text = f"{count} segments were written by a newer version; run that version to store them"
    return text if count else ""
