"""Counting of the rows of a unit in the store, once no running statement can change their number."""

from __future__ import annotations

from dataclasses import dataclass
from errno import EIO

from receiver.backoff import backoff_s
from receiver.engine.store import DayRows, Store
from receiver.journal.segment_core import Core
from receiver.writer import outcome
from receiver.writer.environment import Environment
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.segment_state import Evidence, Observation, RowsCounted, StillRunning, Unusable
from receiver.writer.shards import Shards
from receiver.writer.store_watch import FIRST_S, JITTER, StoreWatch
from receiver.writer.units import OpenUnit, query_id_of

KILL_AFTER_S = 30.0
"""Time that a statement whose response was lost may keep running before it is killed."""
TURN_WAIT_MAX_S = 0.5
"""Time that the writer waits for such a statement before other segments get a turn."""


@dataclass(frozen=True, slots=True)
class RowCounter:
    store: Store
    core: Core
    environment: Environment
    watch: StoreWatch
    shards: Shards

    def count(self, content: OpenUnit, evidence: Evidence) -> Observation:
        """Count rows once no running statement can change the result, and compare them with the content.

        For a unit in doubt, a correct sum is not enough: a day stored twice could hide a missing day.
        """
        if not content.rows:
            return RowsCounted(Comparison(Completeness.COMPLETE))
        # Without doubt every statement was answered, so none can still run.
        running = self.wait_for_statements(evidence) if evidence.in_doubt else None
        if running is not None:
            return running
        counted = self.store.counts([content.location]).get(content.unit.id, {})
        content.rows_stored = sum(counted.values())
        is_sum_correct = content.rows_stored == content.rows
        is_expected = evidence.inserts_ok > 0 and not evidence.in_doubt
        if is_sum_correct and (is_expected or content.is_damaged_after_insert):
            return RowsCounted(Comparison(Completeness.COMPLETE), tuple(counted))
        if content.is_damaged_after_insert:
            text = f"{content.stored_text}; the segment was damaged afterwards"
            return Unusable("odd", text, tuple(counted))
        return self._compare(content, counted, has_answer=evidence.inserts_ok > 0)

    def _compare(self, content: OpenUnit, counted: DayRows, *, has_answer: bool) -> Observation:
        """Compare the rows day by day. `has_answer`: an INSERT of the unit returned OK.

        Raises `OSError` if rows are missing from the file, because the days of the missing rows are then
        unknown.
        """
        try:
            rows = outcome.rows_by_day(self.core.day_runs(content.unit.read(), self.shards.count))
        except ValueError as error:
            if counted and content.rows_stored != content.rows:
                return Unusable("unreadable", f"{error}; {content.stored_text}", tuple(counted))
            is_complete = Completeness.COMPLETE if counted else Completeness.NOTHING
            return RowsCounted(Comparison(is_complete), tuple(counted))
        # The file was intact when it was opened, so the disk changed it since then.
        if rows.total() != content.rows:
            raise OSError(EIO, f"it was damaged after it was opened; expected {content.rows} rows")
        due = outcome.due_days(
            rows, now_s=self.environment.now(), retention_days=self.environment.retention_days
        )
        answered = set(rows) if has_answer else set[str]()
        comparison = outcome.judge(rows, counted, due=due, answered=answered)
        if comparison.completeness is not Completeness.COMPLETE:
            self.shards.require_all()
        return RowsCounted(comparison, tuple(counted))

    def has_rows(self, content: OpenUnit) -> bool:
        return bool(self.store.counts([content.location]))

    def wait_for_statements(self, evidence: Evidence) -> StillRunning | None:
        """Wait briefly for statements whose response was lost; kill those that take too long."""
        prefix, begun_s = query_id_of(str(evidence.unit)), self.environment.monotonic()
        since_s = begun_s if evidence.running_since_s is None else evidence.running_since_s
        for delay_s in backoff_s(FIRST_S, 1.0, jitter=JITTER, random_share=self.environment.jitter):
            if not self.store.running(prefix):
                return None
            now_s = self.environment.monotonic()
            if now_s - since_s >= KILL_AFTER_S:
                self.store.kill(prefix)
            if now_s - begun_s >= TURN_WAIT_MAX_S:
                return StillRunning(since_s, now_s - since_s)
            self.environment.sleep(delay_s)
            # A bad merge can be repaired only for minutes, so the check goes on during this wait.
            self.watch.inspect_if_due()
            self.environment.heartbeat()
        return None
