"""What is sent: INSERTs of a whole segment or of a group of its days, each under a token of its own.

Invariant: a token moves on only after a plain OK. What answered OK often enough and is not there is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from receiver.errors import StoreTrouble
from receiver.journal.files import DIRECTORY_MODE, write_durably
from receiver.storage.aside import unreadable
from receiver.storage.case import Case, Core, SetAside, name_of_days, only_rows, runs_of
from receiver.storage.outcome import Finding, Found
from receiver.storage.progress import Progress
from receiver.storage.search import count_of
from receiver.storage.store import Store
from receiver.storage.surroundings import Surroundings
from receiver.storage.weighing import Resting

TRIES_MAX = 2
"""Plain OKs after which the rows must be there, when no token can be spent already."""
TOKENS_MAX = 8
"""The same in doubt: each life of this process may have spent one token in vain."""


def query_id_of(token: str) -> str:
    """Name the statement that carries this token. Of a segment's id: how all of its statements begin."""
    return f"trace-drain-{token}"


def given_up(finding: Finding, cause: str, text: str) -> SetAside:
    """What is missing goes to the dead letters."""
    return SetAside(cause, text, days=finding.days if finding.found is Found.MISSING else ())


@dataclass(frozen=True, slots=True)
class Inserter:
    """The writer's way into the store."""

    store: Store
    core: Core
    progress: Progress
    around: Surroundings

    def whole(self, case: Case, finding: Finding) -> None:
        """Insert the segment in one statement."""
        if case.token >= self._tries_max(case):
            text = f"rows are missing after {case.token} INSERTs that answered OK; expected {case.rows}"
            raise given_up(finding, "short", text)
        case.days_sent = ()
        self._insert(case, case.file.path, case.token_of_whole(), case.rows)
        case.token += 1
        case.answered = True

    def days(self, case: Case, finding: Finding) -> None:
        """Insert the newest missing days, out of a segment that holds nothing else.

        Raises `Resting` when more days are left, so that other segments get a turn.
        """
        days = sorted(self._days_to_try(case, finding), reverse=True)
        group, left = days[: case.days_per_statement], days[case.days_per_statement :]
        if group:
            self._insert_days(case, group)
        if left:
            case.days_left, case.must_look = tuple(left), False
            raise Resting(is_over_soon=True)

    def _insert_days(self, case: Case, days: Sequence[str]) -> None:
        content, rows = self._cut(case, days)
        name = f"{case.file.id}@{name_of_days(days)}{''.join(case.file.path.suffixes)}"
        part = self.around.repair_dir / name
        part.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        write_durably(part, content)
        case.days_sent = tuple(days)
        try:
            self._insert(case, part, case.token_of_days(days), rows)
        finally:
            part.unlink()
        case.day_tokens.update(days)
        case.days_answered.update(days)

    def _days_to_try(self, case: Case, finding: Finding) -> list[str]:
        """Leave out the days that were given up. When no other is missing, those are set aside."""
        tries_max = self._tries_max(case)
        tired = {day for day in finding.days if case.day_tokens[day] >= tries_max}
        days = [day for day in finding.days if day not in tired | case.days_refused.keys()]
        if finding.days and not days:
            refused = next((case.days_refused[day] for day in finding.days if day in case.days_refused), None)
            text = f"rows of {', '.join(finding.days)} are missing after {tries_max} INSERTs that answered OK"
            raise given_up(finding, "refused" if refused else "short", refused or text)
        return days

    def _cut(self, case: Case, days: Sequence[str]) -> tuple[bytes, int]:
        """Return a segment of these days only, and its number of rows."""
        content = case.file.read()
        try:
            rows = runs_of(content, days, self.core)
            return only_rows(content, rows, self.core, case.file.codec), count_of(rows)
        except ValueError as reason:
            raise unreadable(case, reason) from reason

    def _insert(self, case: Case, path: Path, token: str, rows: int) -> None:
        """Send one INSERT. The engine must have read every row: a file cut short is a silent OK."""
        self.progress.inserts += 1
        self.around.alive()
        read = self.store.insert(path, token=token, query_id=query_id_of(token))
        self.around.alive()
        if read != rows:
            raise StoreTrouble(f"the store read {read} rows of segment {case.file.id}; expected {rows}")
        case.failures = 0

    @staticmethod
    def _tries_max(case: Case) -> int:
        return TOKENS_MAX if case.in_doubt else TRIES_MAX
