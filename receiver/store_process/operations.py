"""Operations for operators: the state of the tables, the ledger, and replays of dead letters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from receiver import transcode
from receiver.backup.snapshot import Snapshot, take_snapshot
from receiver.dead_letters.directory import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.engine import schema
from receiver.engine.store import Store
from receiver.errors import DeadLetterConflict, DiskTrouble, NotConfigured
from receiver.journal.digest_key import DigestKey
from receiver.ledger import query as ledger_query
from receiver.model import SegmentId
from receiver.reports import LedgerReport
from receiver.settings import Settings
from receiver.store_process.writer_thread import WriterThread

ROLLUP_BACKLOG_S = 5.0
"""Age of the oldest waiting segment above which no hour is rolled up."""


class Operations:
    """Operations on the store of a running writer, with the settings from the start."""

    def __init__(self, settings: Settings, store: Store, writer: WriterThread) -> None:
        self._settings = settings
        self._store = store
        self._writer = writer

    def schema_status(self) -> schema.Status:
        """Return the state of the tables. Blocks."""
        wanted, layout = schema.wanted(self._settings), schema.layout_of(self._settings)
        return schema.status(self._store, transcode.SCHEMAS, *wanted, layout=layout)

    def ledger_report(self, query: Mapping[str, str]) -> LedgerReport:
        """Run a ledger query. Blocks."""
        balances = self._writer.require_balances()
        row_lifetime_hours = ledger_query.row_lifetime_hours(self._settings.store)
        ledger_filter = ledger_query.parse_ledger_query(
            query, now_s=time.time(), row_lifetime_hours=row_lifetime_hours
        )
        return ledger_query.ledger(balances, lambda: self._store, ledger_filter)

    def snapshot(self, dead_letter_list: DeadLetterList) -> Snapshot:
        """Take a snapshot of the embedded store between two steps of the writer. Blocks."""
        if not self._store.embedded:
            raise NotConfigured("the store is a server; expected a backup by its statement BACKUP")
        if not self._writer.has_tables:
            raise DiskTrouble("the tables are not known to be up to date yet; `/readyz?verbose` says why")
        data_dir, database = Path(self._settings.data_dir), self._settings.store.database
        # Before the writer is asked: it does not wait for the trial INSERT of a replay.
        with dead_letter_list.lock:
            return self._writer.call_between_steps(
                lambda: take_snapshot(self._store, data_dir, database, time.time())
            )

    def replayer(self, dead_letter_list: DeadLetterList) -> Replayer:
        settings, data_dir = self._settings, Path(self._settings.data_dir)
        policy, digest_key = transcode.policy(settings), DigestKey(data_dir)
        limits = {drain.name: drain.body_bytes_max for drain in settings.drain}
        return Replayer(
            dead_letter_list=dead_letter_list,
            journal=data_dir / "journal",
            store=self._store,
            commit=lambda deliveries, segment: transcode.commit(
                policy, deliveries, segment, digest_key.load().secret
            ),
            body_bytes_max=lambda drain: limits.get(drain) or settings.limits.body_bytes_max,
            now=time.time,
            check=self._check_tables,
            on_replay=self._on_replay,
        )

    def keeps_up(self) -> bool:
        """Return whether the tables exist and no segment waits for the store."""
        progress = self._writer.progress
        is_late = progress.oldest_age_s(time.time()) > ROLLUP_BACKLOG_S
        return self._writer.has_tables and not progress.trouble and not is_late

    def _check_tables(self) -> None:
        if not self._writer.has_tables:
            raise DeadLetterConflict(
                "the store's tables are not known to be up to date yet; `/readyz?verbose` says why"
            )

    def _on_replay(self, segment: SegmentId) -> None:
        self._writer.require_balances().ledger.record_replay(segment)
