"""Thread of the writer: reads ledger and deduplication window, applies the schema, then runs the writer.

Invariant: no row is stored before ledger and window are read. A failure of the thread is kept for `health`,
which ends the process. The thread waits for the store and the disk without limit.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, Final, TypeVar

from receiver import transcode
from receiver.backoff import backoff_s
from receiver.clock import NOTE_NAME
from receiver.dead_letters.directory import DeadLetters
from receiver.deletion.automatic import AutomaticDeletion
from receiver.deletion.deletions import Deletions
from receiver.deletion.disk_budget import DiskBudget
from receiver.deletion.retention_rules import RetentionRules
from receiver.engine import schema
from receiver.engine.error_codes import SLOW, Fault, fault_of
from receiver.engine.expiry import Clock, Expiry
from receiver.engine.store import Store
from receiver.errors import DiskTrouble, OperatorError, StoreTrouble, place_and_reason
from receiver.journal.segments import Journal
from receiver.ledger.balance import Backlog, LiveBalanceSource
from receiver.ledger.ledger import Ledger, deletion_path, is_first_on
from receiver.ledger.recorded import RecordedSegments
from receiver.logs import limited
from receiver.redelivery.window import Window, drains_without_dedupe
from receiver.settings import Settings
from receiver.store_process.lost_tables import LostTables
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress, WaitingUnits
from receiver.writer.store_watch import JITTER, SLOWER_CEILING_S, SLOWER_FIRST_S, Delays
from receiver.writer.writer import Writer

MARGIN_S = 300.0
"""Margin in addition to the INSERT timeout. Longer than any retry pause and any query."""


STEP_S_MAX: Final = 60.0
"""Time that a call between two steps waits. Shorter than the time-out of a command's request."""
ANSWER_S_MAX: Final = 30.0
"""Time without an answer of the store after which health reports it."""


class WriterHangs(OperatorError):  # noqa: N818 - a verdict, as its base
    """The writer hangs in a call of the store. The next process counts the rows of its last segment."""

    exit_code: ClassVar[int] = 1


class Watchdog:
    """Time of the writer's last heartbeat. The watchdog starts with the first heartbeat."""

    def __init__(self, now: Callable[[], float], *, silence_s_max: float) -> None:
        self._now = now
        self._silence_s_max = silence_s_max
        self._beat_at_s: float | None = None

    def beat(self) -> None:
        """Record a heartbeat. Called on the writer's thread."""
        self._beat_at_s = self._now()

    def stop(self) -> None:
        """Stop checking the writer."""
        self._beat_at_s = None

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last heartbeat."""
        # Read once: the writer's thread may set it to `None` between two reads.
        beat_at_s = self._beat_at_s
        return 0.0 if beat_at_s is None else self._now() - beat_at_s

    @property
    def trouble(self) -> str:
        """Describe a call of the store that takes long; empty if none does."""
        silent_s = self.silent_s
        return f"no answer for {silent_s:.0f} s" if silent_s > ANSWER_S_MAX else ""

    def check(self) -> None:
        """Raise `WriterHangs` if the last heartbeat is too old."""
        silent_s = self.silent_s
        if silent_s > self._silence_s_max:
            raise WriterHangs(
                f"writer was silent for {silent_s:.0f} s; expected the store to return "
                f"within {self._silence_s_max:.0f} s"
            )


TRIES_AFTER_STOP = 1
"""Sleeps that return at once after a stop instead of raising, for the last segments or a final retry."""


class StopSignal:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stop = threading.Event()
        self._deadline_s = 0.0
        self._tries_left = TRIES_AFTER_STOP

    def stop(self, grace_s: float) -> None:
        """Interrupt every sleep. After `grace_s`, every `sleep` raises `Stopping`."""
        # Before the event: the writer reads the deadline as soon as the event wakes it.
        self._deadline_s = self._now() + grace_s
        self._stop.set()

    def sleep(self, delay_s: float) -> None:
        """Sleep. After a stop, raises `Stopping` if no try or time is left. A delay of 0 checks the time."""
        if not self._stop.wait(delay_s):
            return
        # A check without a delay is no retry, so it uses up no try.
        if delay_s:
            self._tries_left -= 1
        if self._tries_left < 0 or self._now() > self._deadline_s:
            raise Stopping


T = TypeVar("T")


class WriterThread:
    """The writer with its logs, and their state as other threads read it."""

    def __init__(self, settings: Settings, store: Store, journal: Journal, dead: DeadLetters) -> None:
        self.progress = Progress()
        self.has_tables = False
        """Whether the tables are known to be up to date."""
        self.balances: LiveBalanceSource | None = None
        """The ledger; `None` until it is read."""
        self.recorded: RecordedSegments | None = None
        """Recorded segments; `None` until the log is read, or if metrics of spans are off."""
        self.deletions: Deletions | None = None
        """Deletion of spans; `None` until the ledger is read, or if the store is a server."""
        self._automatic: Sequence[AutomaticDeletion] = ()
        self._settings, self._data_dir = settings, Path(settings.data_dir)
        self._store, self._journal, self._dead = store, journal, dead
        self.expiry = Expiry(store, Clock(self._data_dir / NOTE_NAME), settings.store.retention_days)
        self.lost_tables = LostTables(self._data_dir)
        self._window: Window | None = None
        self._drains_without_dedupe = drains_without_dedupe(settings)
        # Read before the writer creates the directory whose absence is the result.
        self._is_first = is_first_on(self._data_dir)
        self._failure: BaseException | None = None
        self._stop_signal = StopSignal(time.monotonic)
        self._watchdog = Watchdog(time.monotonic, silence_s_max=settings.store.insert_timeout_s + MARGIN_S)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # A daemon thread, so that a writer that hangs in the engine cannot prevent the exit.
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Let the writer insert sealed segments for this long."""
        self._stop_signal.stop(grace_s)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most this long."""
        self._thread.join(seconds)

    def exempt_drains(self, settings: Settings) -> None:
        """Apply each drain's `dedupe`."""
        self._drains_without_dedupe = drains_without_dedupe(settings)
        # Without a window the thread has not read it yet, and opens it with the drains stored above.
        if self._window is not None:
            self._window.exempt_drains = self._drains_without_dedupe

    def check(self) -> None:
        """Raise the exception that ended the thread, or `WriterHangs`."""
        if self._failure is not None:
            raise self._failure
        self._watchdog.check()

    @property
    def trouble(self) -> str:
        """Reason that the oldest segment is not stored yet; empty if there is none."""
        return self.progress.trouble or self._watchdog.trouble

    def require_balances(self) -> LiveBalanceSource:
        """Return the ledger. Raises `DiskTrouble` until it is read."""
        if self.balances is None:
            raise DiskTrouble("ledger is still being read; retry in a few seconds")
        return self.balances

    def call_between_steps(self, call: Callable[[], T]) -> T:
        """Run `call` on the writer's thread between two steps, and return its result. Blocks.

        Raises `DiskTrouble` if the writer takes no step for too long.
        """
        result: Future[T] = Future()

        def run() -> None:
            if result.set_running_or_notify_cancel():
                try:
                    result.set_result(call())
                except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                    result.set_exception(error)

        self._calls.put(run)
        # A call that has begun cannot be cancelled, and is waited for.
        if not wait([result], STEP_S_MAX).done and result.cancel():
            raise DiskTrouble("the writer waits for the store; `/readyz?verbose` says why")
        return result.result()

    def _write(self) -> None:
        try:
            # The ledger first: it recorded how long the log of the window must be, so a loss is noticed.
            ledger = self._open_with_retries("ledger", self._open_ledger)
            self._window = self._open_with_retries("redelivery window", partial(self._open_window, ledger))
            if self._settings.api.enabled and self._settings.api.span_metrics:
                path = self._data_dir / "span-metrics" / "segments.log"
                self.recorded = self._open_with_retries("span metrics", partial(RecordedSegments, path))
                ledger.recorded = self.recorded
            self.balances = LiveBalanceSource(ledger, Backlog(self._data_dir / "journal"))
            if self._store.embedded:
                self._open_deletions(self.balances)
            writer = self._writer(self._window, ledger)
            # Before the schema, because applying it may wait for the store for days.
            writer.run_maintenance()
            self._apply_schema(writer, ledger)
            writer.run()
        # Raised out of a sleep or a retry. Segments that are left stay in the journal.
        except Stopping:
            return
        except BaseException as failure:  # noqa: BLE001 - `check` raises it, and the process ends
            self._failure = failure
        finally:
            self._watchdog.stop()

    def _apply_schema(self, writer: Writer, ledger: Ledger) -> None:
        """Apply the schema, retrying for as long as the store is unavailable or used by another process."""
        progress, delays = self.progress, Delays(random.random)
        while fault := self._schema_fault(ledger):
            # No writer runs yet, so the backlog would otherwise be reported as empty.
            WaitingUnits(self._journal.sealed(), progress).report(time.time())
            limited.warning("writer: schema", "schema cannot be applied yet", error=progress.trouble)
            writer.run_maintenance()
            self._stop_signal.sleep(next(delays.slow if fault in SLOW else delays.fast))
        progress.trouble = ""
        self.has_tables = True

    def _schema_fault(self, ledger: Ledger) -> Fault | None:
        """Apply the schema once. Returns the class of the error, or `None` if the tables are up to date."""
        progress, wanted = self.progress, schema.wanted(self._settings)
        try:
            with ledger.watching() as watch:
                sums, _ = ledger.sums(watch)
            detect = partial(self.lost_tables.detect, self._store, transcode.SCHEMAS, sums, time.time())
            self._open_with_retries("store.lost", detect)
            layout = schema.layout_of(self._settings)
            schema.apply(
                self._store, transcode.SCHEMAS, *wanted, layout=layout, sleep=self._stop_signal.sleep
            )
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
            self._data_dir / "redelivery",
            self._settings.redelivery,
            time.monotonic,
            exempt_drains=self._drains_without_dedupe,
            extent_min=ledger.window,
        )

    def _open_ledger(self) -> Ledger:
        return Ledger(self._data_dir / "ledger", self._settings.ledger, time.time, is_first=self._is_first)

    def _open_deletions(self, balances: LiveBalanceSource) -> None:
        path = deletion_path(self._data_dir)
        self.deletions = self._open_with_retries("deletion", partial(Deletions, path, self._store, balances))
        store = self._settings.store
        self._automatic = (
            DiskBudget(self._store, self.deletions, store.disk_bytes_max),
            RetentionRules(self._store, self.deletions, store.retention_rule),
        )

    def _open_with_retries(self, name: str, open_log: Callable[[], T]) -> T:
        """Open a log. Retries disk errors without limit, because no row may be stored without the log."""
        for delay_s in backoff_s(SLOWER_FIRST_S, SLOWER_CEILING_S, jitter=JITTER):
            try:
                return open_log()
            except OSError as os_error:
                error = place_and_reason(os_error)
                self.progress.trouble = f"{name} cannot be read: {error}"
                limited.error(f"writer: {name}", f"{name} cannot be read", error=error)
            self._stop_signal.sleep(delay_s)
        raise AssertionError("backoff delays ended; expected them to be infinite")

    def _writer(self, window: Window, ledger: Ledger) -> Writer:
        environment = Environment(
            now=time.time,
            monotonic=time.monotonic,
            sleep=self._stop_signal.sleep,
            jitter=random.random,
            repair_dir=self._data_dir / "repair",
            retention_days=self._settings.store.retention_days,
            heartbeat=self._on_step,
        )
        return Writer(
            self._journal,
            self._store,
            core=transcode,
            window=window,
            ledger=ledger,
            dead=self._dead,
            progress=self.progress,
            environment=environment,
        )

    def _on_step(self) -> None:
        """Callback that the writer runs between two steps."""
        self._watchdog.beat()
        while not self._calls.empty():
            self._calls.get()()
        self.expiry.check()
        if not self.has_tables:
            return
        self.expiry.drop_expired_days()
        if self.deletions is not None:
            self.deletions.advance()
        # With a wrong clock, the oldest day may have the newest spans.
        if not self.expiry.warning:
            for deletion in self._automatic:
                deletion.check()
