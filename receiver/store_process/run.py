"""Store process: starts the API, reads ledger and deduplication window, applies the schema, runs the writer.

Invariant: it starts and serves health and ledger while the store is unavailable. On a stop it inserts sealed
segments within its grace period; the others stay in the journal. A failure of the writer ends the process.
"""

from __future__ import annotations

import asyncio
import random
import socket
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
from receiver.api.routes import REQUESTS_MAX, Api
from receiver.api.spool import SpoolSpace
from receiver.channel import Start
from receiver.clock import NOTE_NAME
from receiver.dead_letters.listing import DeadLetterConflict, DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.engine import schema
from receiver.engine.clock_check import Clock
from receiver.engine.error_codes import SLOW, Fault, fault_of
from receiver.engine.expiry import Expiry
from receiver.engine.opening import claimed, open_store
from receiver.errors import DiskTrouble, OperatorError, StoreTrouble, place_and_reason
from receiver.http.listener import Listener
from receiver.http.protocol import Limits
from receiver.journal.digest_key import DigestKey
from receiver.journal.segments import Journal
from receiver.ledger.balance import Accounts, Backlog
from receiver.ledger.ledger import Ledger, is_first_on
from receiver.logs import limited
from receiver.metrics import Metrics
from receiver.model import SegmentId
from receiver.query import ledger as ledger_query
from receiver.redelivery.window import Window
from receiver.settings import Settings
from receiver.store_process.ledger_metrics import LedgerMetrics
from receiver.store_process.metrics import report
from receiver.store_process.stop_signal import StopSignal
from receiver.store_process.watchdog import MARGIN_S, Watchdog
from receiver.writer.backoff import SLOWER_CEILING_S, SLOWER_FIRST_S, Delays, backoff_s
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer

T = TypeVar("T")

CLOSE_S = 3.0
"""Part of the grace period reserved for closing the engine."""


async def start_store_process(start: Start, metrics: Metrics) -> StoreWork:
    """Claim the data directory, open the store, start the writer, serve the API."""
    held = ExitStack()
    try:
        held.enter_context(claimed(Path(start.settings.data_dir)))
        work = await asyncio.to_thread(StoreWork, start.settings, metrics, held)
        await work.serve(start.listen_fd)
    except BaseException:
        held.close()
        raise
    return work


class StoreWork:
    """The store, its writer and its API."""

    def __init__(self, settings: Settings, metrics: Metrics, held: ExitStack) -> None:
        data_dir = Path(settings.data_dir)
        self._settings = settings
        self._api_token = settings.api_token
        self._metrics = metrics
        self._resources = held
        self._journal = Journal(data_dir / "journal")
        self._dead_letter_list = DeadLetterList(data_dir)
        self._dead_letters = self._dead_letter_list.dead
        self._dead_letters.tidy()
        self._progress = Progress()
        self._stop_signal = StopSignal(time.monotonic)
        self._watchdog = Watchdog(time.monotonic, silence_s_max=settings.store.insert_timeout_s + MARGIN_S)
        self._drains_without_dedupe = _drains_without_dedupe(settings)
        self._window: Window | None = None
        self._accounts: Accounts | None = None
        self._has_tables = False
        self._is_first = is_first_on(data_dir)
        self._failure: BaseException | None = None
        self._clock = Clock(data_dir / NOTE_NAME)
        self._store = open_store(settings, disk_free_min=self._disk_free_min)
        held.callback(self._store.close)
        self._expiry = Expiry(self._store, self._clock)
        self._pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="question")
        self._stream_pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="answer")
        self._ledger_metrics = LedgerMetrics(self._pool, metrics)
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._listener: Listener | None = None

    async def serve(self, listen_fd: int) -> None:
        """Start the writer and serve the API on the inherited socket."""
        api = Api(
            store=self._store,
            token=lambda: self._api_token,
            health=self.health,
            ledger=self._ledger_answer,
            schema=lambda: schema.status(self._store, transcode.SCHEMAS, self._settings.store.retention_days),
            pool=self._pool,
            stream_pool=self._stream_pool,
            space=self._spool_space(),
            hosts=self._settings.api_hosts,
        )
        letters = DeadLetterRoutes(self._replays(), self._pool)
        limits = self._settings.limits
        self._listener = Listener(
            Limits("api", limits.api_connections_max, limits.header_timeout_s, limits.write_timeout_s),
            self._metrics,
        )
        await self._listener.open(api.application(letters), socket.socket(fileno=listen_fd))
        self._thread.start()

    def _spool_space(self) -> SpoolSpace:
        return SpoolSpace(
            Path(self._settings.data_dir), self._settings.limits.api_spool_bytes_max, self._disk_free_min
        )

    async def reload(self, settings: Settings) -> None:
        """Take the new token and each drain's `dedupe`; a new store, retention or window needs a restart."""
        self._api_token = settings.api_token
        self._drains_without_dedupe = _drains_without_dedupe(settings)
        if self._window is not None:
            self._window.exempt_drains = self._drains_without_dedupe

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Do nothing: the API has one process."""

    async def seal(self) -> None:
        """Do nothing: the store process has no open segment."""

    def health(self) -> dict[str, str]:
        """Return the checks of store and writer. Raises the writer's exception, or `WriterHangs`."""
        if self._failure is not None:
            raise self._failure
        self._watchdog.check()
        report(self._progress, self._dead_letters, self._metrics)
        if self._accounts is not None:
            self._ledger_metrics.tick(self._accounts.balance)
        return {
            "store": self._progress.trouble,
            "writer": self._progress.stall_reason,
            "redelivery": self._progress.window_trouble,
            "ledger": self._ledger_metrics.trouble,
            "clock": self._expiry.warning,
            "journal": _newer_segments_text(len(self._journal.held)),
        }

    def _ledger_answer(self, query: Mapping[str, str]) -> object:
        """Answer a ledger query. Called in a thread of the pool."""
        accounts = self._require_accounts()
        row_lifetime_hours = ledger_query.row_lifetime_hours(self._settings.store)
        asked = ledger_query.parse_ledger_query(
            query, now_s=time.time(), row_lifetime_hours=row_lifetime_hours
        )
        return ledger_query.ledger(accounts, lambda: self._store, asked)

    def _require_accounts(self) -> Accounts:
        if self._accounts is None:
            raise DiskTrouble("ledger is not read yet; expected within seconds of the start")
        return self._accounts

    async def stop(self) -> None:
        """Close the API, insert sealed segments within the grace period and close the engine."""
        if self._listener is not None:
            await self._listener.close()
        self._ledger_metrics.stop()
        grace_s = max(1.0, self._settings.limits.stop_grace_s - CLOSE_S)
        self._stop_signal.stop(grace_s)
        await asyncio.to_thread(self._thread.join, grace_s)
        await asyncio.to_thread(self._resources.close)
        self._pool.shutdown(wait=False)
        self._stream_pool.shutdown(wait=False)

    def _write(self) -> None:
        """Run the writer; body of its thread."""
        try:
            ledger = self._open_with_retries("ledger", self._open_ledger)
            self._window = self._open_with_retries("redelivery window", partial(self._open_window, ledger))
            self._accounts = Accounts(ledger, Backlog(Path(self._settings.data_dir) / "journal"))
            writer = self._writer(self._window, ledger)
            writer.run_maintenance()
            self._apply_schema(writer)
            writer.run()
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
            progress.record_backlog(list(self._journal.sealed()), time.time())
            limited.warning("writer: schema", "schema cannot be applied yet", why=progress.trouble)
            writer.run_maintenance()
            self._stop_signal.sleep(next(delays.slow if fault in SLOW else delays.fast))
        progress.trouble = ""
        self._has_tables = True

    def _schema_fault(self) -> Fault | None:
        """Apply the schema once. `None`: the tables are up to date."""
        progress, days = self._progress, self._settings.store.retention_days
        try:
            schema.apply(self._store, transcode.SCHEMAS, days, sleep=self._stop_signal.sleep)
            self._store.forget_trials()
        except StoreTrouble as trouble:
            fault, why = fault_of(trouble), trouble.label
            progress.record_failure(fault, why)
        except OperatorError as reason:
            fault, why = Fault.HOLD, str(reason)
        else:
            return None
        progress.trouble = f"schema: {why}"
        if fault is Fault.HOLD:
            progress.alarm("schema", f"schema cannot be applied: {why}")
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

    def _open_with_retries(self, what: str, call: Callable[[], T]) -> T:
        """Open a log, retrying on disk errors for ever: without it no row may be stored."""
        for delay_s in backoff_s(random.random, first_s=SLOWER_FIRST_S, ceiling_s=SLOWER_CEILING_S):
            try:
                return call()
            except OSError as reason:
                why = place_and_reason(reason)
                self._progress.trouble = f"{what} cannot be read: {why}"
                limited.error(f"writer: {what}", f"{what} cannot be read", why=why)
            self._stop_signal.sleep(delay_s)
        raise AssertionError("backoff ended; expected it to go on for ever")

    def _writer(self, window: Window, ledger: Ledger) -> Writer:
        around = Environment(
            now=time.time,
            sleep=self._stop_signal.sleep,
            jitter=random.random,
            repair_dir=Path(self._settings.data_dir) / "repair",
            retention_days=self._settings.store.retention_days,
            alive=self._on_step,
        )
        return Writer(
            self._journal,
            self._store,
            core=transcode,
            window=window,
            ledger=ledger,
            dead=self._dead_letters,
            progress=self._progress,
            environment=around,
        )

    def _replays(self) -> Replayer:
        """Return the replayer of dead letters; it decodes bodies with the settings of the start."""
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

    def _check_tables(self) -> None:
        if not self._has_tables:
            raise DeadLetterConflict(
                "the store's tables are not known to be up to date yet; `/readyz?verbose` says why"
            )

    def _on_replay(self, segment: SegmentId) -> None:
        self._require_accounts().ledger.replaying(segment)

    def _on_step(self) -> None:
        """Run between two steps of the writer."""
        self._watchdog.beat()
        self._expiry.look()

    def _disk_free_min(self) -> int:
        """Return the free disk that the engine must leave: room for the journal to grow, plus its floor."""
        journal = self._settings.journal
        return max(0, journal.bytes_max - self._journal.bytes_total()) + journal.disk_free_min


def _drains_without_dedupe(settings: Settings) -> frozenset[str]:
    """Return the drains without deduplication."""
    return frozenset(drain.name for drain in settings.drain if not drain.dedupe)


def _newer_segments_text(count: int) -> str:
    """Return the health text for segments of a newer version; empty if there are none."""
    return (
        f"{count} segments were written by a newer version; run that version to store them" if count else ""
    )
