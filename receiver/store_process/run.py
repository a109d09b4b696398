"""Store process: opens the store, runs the writer and the features, and serves their ports.

Invariant: the process starts and serves health and ledger even while the store is unavailable. When stopped,
it inserts sealed segments within its grace period; the remaining segments stay in the journal. A failure of
the writer ends the process.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from receiver import process
from receiver.channel import Reload, Start
from receiver.config.load import Loaded
from receiver.dead_letters.directory import DeadLetterList
from receiver.engine.opening import claimed, open_store
from receiver.feature import MakeFeatures, StoreParts
from receiver.http.listener import Ports
from receiver.journal.segments import Journal
from receiver.metrics import Metrics
from receiver.store_process.deletion_requests import DeletionRequests
from receiver.store_process.metrics import LedgerMetrics, newer_segments_text, report
from receiver.store_process.operations import Operations
from receiver.store_process.writer_thread import WriterThread

NICENESS = 5
"""Added to that of the intakes, whose answers then wait less for the CPU time of queries and INSERTs."""
REQUESTS_MAX = 4
"""Threads for short calls that block: schema, ledger, dead letters."""
CLOSE_S = 3.0
"""Part of the grace period reserved for closing the engine."""


def main(make_features: MakeFeatures = lambda _parts: ()) -> None:
    # Before any thread starts, because a thread inherits it.
    os.nice(NICENESS)
    process.run(partial(start_store_process, make_features=make_features))


async def start_store_process(start: Start, metrics: Metrics, make_features: MakeFeatures) -> StoreWork:
    """Claim the data directory, open the store, start the features, then the writer."""
    resources = ExitStack()
    try:
        # Entered first, so closed last: the lock is held until the engine is closed.
        resources.enter_context(claimed(Path(start.settings.data_dir)))
        # In a thread: opening the engine may take long, and the process sends reports meanwhile.
        work = await asyncio.to_thread(StoreWork, start, metrics, resources, make_features)
        await work.start()
    # Also when cancelled: the next process waits for the lock.
    except BaseException:
        resources.close()
        raise
    return work


class StoreWork:
    """The store, its writer and the features. Implements `receiver.process.Work`."""

    def __init__(
        self, start: Start, metrics: Metrics, resources: ExitStack, make_features: MakeFeatures
    ) -> None:
        settings, data_dir = start.settings, Path(start.settings.data_dir)
        self._metrics, self._resources = metrics, resources
        metrics.set("backlog_bytes_max", settings.journal.bytes_max)
        self._journal = Journal(data_dir / "journal")
        dead_letter_list = DeadLetterList(data_dir)
        self._dead_letters = dead_letter_list.dead
        # Before the writer or a replay can create files that `tidy` would delete.
        self._dead_letters.tidy()
        self._store = open_store(settings, disk_free_min=self._disk_free_min)
        resources.callback(self._store.close)
        self._writer = WriterThread(settings, self._store, self._journal, self._dead_letters)
        self._pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="request")
        self._ledger_metrics = LedgerMetrics(self._pool, metrics)
        self._settings = settings
        operations = Operations(settings, self._store, self._writer)
        deletion_requests = DeletionRequests(self._store, self._writer)
        self._parts = StoreParts(
            Loaded(settings, start.origins, ()),
            self._store,
            self._writer.progress,
            self.health,
            operations.schema_status,
            operations.ledger_report,
            partial(operations.snapshot, dead_letter_list),
            deletion_requests.report,
            deletion_requests.begin,
            operations.replayer(dead_letter_list),
            Journal(data_dir / "journal").bytes_total,
            self._disk_free_min,
            lambda: self._writer.has_tables,
            operations.keeps_up,
            lambda: self._writer.recorded,
            Ports(settings.limits, metrics),
            start.sibling_fds,
            self._pool,
        )
        self._features = make_features(self._parts)

    async def start(self) -> None:
        """Start the features, which serve health checks while the ledger is read; then the writer."""
        for feature in self._features:
            await feature.start()
        self._writer.start()

    async def reload(self, message: Reload) -> None:
        """Apply the users and each drain's `dedupe`. A new store, retention or window needs a restart."""
        self._parts.loaded = Loaded(message.settings, message.origins, ())
        self._writer.exempt_drains(message.settings)
        for feature in self._features:
            feature.reload()

    def accept_for(self, listen_fds: tuple[int, ...]) -> None:
        """Do nothing: the API has one process."""

    async def seal(self) -> None:
        """Do nothing: the store process has no open segment."""

    def health(self) -> dict[str, str]:
        """Return the problem of each check. Raises the writer's exception, or `WriterHangs`."""
        # Raising is how the writer's thread ends the process: health is asked for every second.
        self._writer.check()
        progress, balances = self._writer.progress, self._writer.balances
        report(progress, self._dead_letters, self._metrics)
        # The ledger is read in the writer's thread and may not be ready yet.
        if balances is not None:
            self._ledger_metrics.tick(balances.balance)
        checks = {
            "store": self._writer.trouble,
            "writer": progress.stall_reason,
            "redelivery": progress.window_trouble,
            "ledger": self._ledger_metrics.trouble,
            "tables": self._writer.lost_tables.trouble,
            "clock": self._writer.expiry.warning,
            "journal": newer_segments_text(self._journal),
        }
        for feature in self._features:
            checks.update(feature.report(self._metrics))
        return checks

    async def stop(self) -> None:
        """Close the ports, insert sealed segments within the grace period and close the engine."""
        await self._parts.ports.close()
        # Before the pool is shut down, because a health check may still come and would submit to it.
        self._ledger_metrics.stop()
        # The rest of the grace period is reserved for closing the engine.
        grace_s = max(1.0, self._settings.limits.stop_grace_s - CLOSE_S)
        self._writer.stop(grace_s)
        # The writer in a thread, because it blocks, and the event loop must keep sending reports.
        await asyncio.gather(
            *(feature.stop() for feature in self._features), asyncio.to_thread(self._writer.join, grace_s)
        )
        # After the writer, which uses the engine; also if it hangs, because the grace period is over.
        await asyncio.to_thread(self._resources.close)
        # Do not wait for the pool: a call that hangs in the engine must not delay the exit.
        self._pool.shutdown(wait=False)

    def _disk_free_min(self) -> int:
        """Return the disk space that the engine must leave free for the journal and `disk_free_min`."""
        journal = self._settings.journal
        # The journal must be able to grow to its maximum, or the store could fill the disk and block
        # deliveries.
        return max(0, journal.bytes_max - self._journal.bytes_total()) + journal.disk_free_min
