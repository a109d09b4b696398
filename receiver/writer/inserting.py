"""INSERTs of a whole segment or of a group of its days, each with its own deduplication token.

Invariant: the token changes only after an INSERT returned OK. Rows that are still missing after enough
INSERTs that returned OK become a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from receiver.durable.files import DIRECTORY_MODE, write_durably
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.journal.segment_core import Core
from receiver.writer.dead_lettering import unreadable_segment
from receiver.writer.environment import Environment
from receiver.writer.error_policy import TurnEnded
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.progress import Progress
from receiver.writer.row_search import row_count
from receiver.writer.segment_state import (
    DeadLettered,
    SegmentState,
    extract_rows,
    name_of_days,
    ranges_of_days,
)

TRIES_MAX = 2
"""INSERTs that returned OK after which the rows must be stored, when no token can be used up yet."""
TOKENS_MAX = 8
"""The same for a segment in doubt: each earlier process may have used up one token without storing rows."""


def query_id_of(token: str) -> str:
    """Return the query id for a token. For a segment id: the common prefix of its query ids."""
    return f"trace-drain-{token}"


def missing_rows_dead(comparison: Comparison, cause: str, text: str) -> DeadLettered:
    """Return the exception that makes the missing rows a dead letter."""
    return DeadLettered(
        cause, text, days=comparison.days if comparison.completeness is Completeness.MISSING else ()
    )


@dataclass(frozen=True, slots=True)
class Inserter:
    """Sends the INSERTs of the writer."""

    store: Store
    core: Core
    progress: Progress
    environment: Environment

    def insert_whole(self, state: SegmentState, comparison: Comparison) -> None:
        """Insert the segment in one statement."""
        if state.token >= self._tries_max(state):
            text = f"rows are missing after {state.token} INSERTs that returned OK; expected {state.rows}"
            raise missing_rows_dead(comparison, "short", text)
        state.days_sent = ()
        self._insert(state, state.file.path, state.token_of_whole(), state.rows)
        state.token += 1
        state.answered = True

    def insert_days(self, state: SegmentState, comparison: Comparison) -> None:
        """Insert the newest missing days from a temporary segment that holds only those.

        Raises `TurnEnded` if more days are missing, so that other segments get a turn.
        """
        days = sorted(self._days_to_try(state, comparison), reverse=True)
        group, left = days[: state.days_per_statement], days[state.days_per_statement :]
        if group:
            self._insert_days(state, group)
        if left:
            state.days_left, state.must_count = tuple(left), False
            raise TurnEnded(retry_soon=True)

    def _insert_days(self, state: SegmentState, days: Sequence[str]) -> None:
        content, rows = self._extract_days(state, days)
        name = f"{state.file.id}@{name_of_days(days)}{''.join(state.file.path.suffixes)}"
        part = self.environment.repair_dir / name
        part.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        write_durably(part, content)
        state.days_sent = tuple(days)
        try:
            self._insert(state, part, state.token_of_days(days), rows)
        finally:
            part.unlink()
        state.day_tokens.update(days)
        state.days_answered.update(days)

    def _days_to_try(self, state: SegmentState, comparison: Comparison) -> list[str]:
        """Return the missing days worth another INSERT. Raises `DeadLettered` if there are none."""
        tries_max = self._tries_max(state)
        exhausted = {day for day in comparison.days if state.day_tokens[day] >= tries_max}
        days = [day for day in comparison.days if day not in exhausted | state.days_refused.keys()]
        if comparison.days and not days:
            refused = next(
                (state.days_refused[day] for day in comparison.days if day in state.days_refused), None
            )
            text = (
                f"rows of {', '.join(comparison.days)} are missing after {tries_max} INSERTs that returned OK"
            )
            raise missing_rows_dead(comparison, "refused" if refused else "short", refused or text)
        return days

    def _extract_days(self, state: SegmentState, days: Sequence[str]) -> tuple[bytes, int]:
        """Return a segment that holds only these days, and its number of rows."""
        content = state.file.read()
        try:
            rows = ranges_of_days(content, days, self.core)
            return extract_rows(content, rows, self.core, state.file.codec), row_count(rows)
        except ValueError as reason:
            raise unreadable_segment(state, reason) from reason

    def _insert(self, state: SegmentState, path: Path, token: str, rows: int) -> None:
        """Send one INSERT and check that the engine read every row: it returns OK for a truncated file."""
        self.progress.inserts += 1
        self.environment.alive()
        read = self.store.insert(path, token=token, query_id=query_id_of(token))
        self.environment.alive()
        if read != rows:
            raise StoreTrouble(f"the store read {read} rows of segment {state.file.id}; expected {rows}")
        state.failures = 0

    @staticmethod
    def _tries_max(state: SegmentState) -> int:
        return TOKENS_MAX if state.in_doubt else TRIES_MAX
