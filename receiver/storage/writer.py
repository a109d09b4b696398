"""The writer: carries sealed segments from the journal into the store, oldest first, one INSERT at a time.

    settle   which deliveries are new   noted durably, the others left out: from then on its content is final
    look     is it there already?       after any doubt, once nothing about it runs any more
    insert   the whole segment          the same token until a plain OK, then the next
    mend     the days that are missing  each alone, under tokens of its own
    finish   companion, sync, digests,  only when every due row was counted
             unlink

Keeps: a segment is let go of when all its rows were counted in the store, or lie in the dead letters with the
reason. Never: gives up on the store. While it is away the journal grows, and it is the journal's ceiling, not
the writer's patience, that makes senders wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage import outcome
from receiver.storage.backoff import CEILING_S, FIRST_S, SLOWER_CEILING_S, SLOWER_FIRST_S, backoff_s
from receiver.storage.case import BLOCK_ROWS_MAX, Case, Core, Reading, SegmentFile, reading_of
from receiver.storage.dead import DeadLetters, Reason, write_durably
from receiver.storage.faults import Fault, fault_of
from receiver.storage.outcome import Finding, Found
from receiver.storage.progress import Progress
from receiver.storage.sifting import Postponed, digests_kept, final, settled
from receiver.storage.store import Held, Store
from receiver.storage.window import Window

IDLE_S = 0.1
"""Between two looks at an empty journal."""
INSPECT_S = 60.0
"""Between two looks at what the store's disk may have damaged."""
KILL_AFTER_S = 30.0
"""How long a statement whose answer was lost may run on before it is killed."""
TRIES_MAX = 2
"""Plain OKs after which the rows must be there, when no token can be spent already."""
TOKENS_MAX = 8
"""The same in doubt: each life of this process may have spent one token in vain."""
ODD_LOOKS_MAX = 2


def query_id_of(token: str) -> str:
    """Name the statement that carries this token. Of a segment's id: how all of its statements begin."""
    return f"trace-drain-{token}"


class Journal(Protocol):
    """The end of the journal where segments come out."""

    def sealed(self) -> Iterable[SegmentFile]:
        """Name the sealed segments, oldest first."""


class Stopping(Exception):  # noqa: N818 - not an error: how `sleep` ends the writer
    """There is no time left to wait for anything."""


class _SetAside(Exception):  # noqa: N818 - not an error: how a case is closed from any depth
    """The segment goes to the dead letters."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the writer is told of the world. `sleep` may raise `Stopping`."""

    now: Callable[[], float]
    """Wall clock, seconds since 1970."""
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    repair_dir: Path
    """Where the segment of a single day lies while it is inserted."""
    retention_days: int


class Writer:
    """Drains the journal until `sleep` says there is no time left."""

    def __init__(  # noqa: PLR0913 - each is a neighbour that a test replaces
        self,
        journal: Journal,
        store: Store,
        *,
        core: Core,
        window: Window,
        dead: DeadLetters,
        progress: Progress,
        around: Surroundings,
    ) -> None:
        self._journal = journal
        self._store = store
        self._core = core
        self._window = window
        self._dead = dead
        self._progress = progress
        self._around = around
        self._found_at_start: set[SegmentId] | None = None
        self._inspect_at_s = around.now() + INSPECT_S

    def run(self) -> None:
        """Carry segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._around.sleep(IDLE_S)
                self._inspect_if_due()
        except Stopping:
            return

    def _inspect_if_due(self) -> None:
        """A merge that went wrong is mended by what it was made of, and that is kept for minutes only."""
        if self._around.now() < self._inspect_at_s:
            return
        self._inspect_at_s = self._around.now() + INSPECT_S
        try:
            self._store.inspect()
        except StoreTrouble as trouble:
            limited.warning(f"store: {trouble.label}", "store cannot be inspected", why=trouble.label)

    def drain(self) -> int:
        """Carry every segment that is sealed now. How many came to their end."""
        segments = list(self._journal.sealed())
        if self._found_at_start is None:
            self._found_at_start = {segment.id for segment in segments}
            self._window.retain(self._found_at_start)
        # What was begun comes first: others may have to wait for it.
        segments.sort(key=lambda segment: self._window.standing(segment.id) is None)
        carried = 0
        for index, segment in enumerate(segments):
            self._around.sleep(0)
            self._tell(segments[index:])
            in_doubt = segment.id in self._found_at_start
            carried += self._carry_if_readable(segment, in_doubt=in_doubt)
        self._tell(())
        return carried

    def _tell(self, backlog: Sequence[SegmentFile]) -> None:
        self._window.tick()
        self._progress.backlog(backlog, self._around.now())
        self._progress.window(len(self._window), self._window.reach_s, self._window.shortfall)

    def _carry_if_readable(self, segment: SegmentFile, *, in_doubt: bool) -> bool:
        """Our own disk's trouble with one segment must not keep the others waiting."""
        try:
            self.carry(segment, in_doubt=in_doubt)
        except Postponed:
            return False
        except OSError as error:
            self._progress.trouble = f"segment {segment.id}: {error.strerror}"
            self._alarm("disk", f"segment {segment.id} cannot be read or let go of: {error.strerror}")
            self._around.sleep(SLOWER_FIRST_S)
            return False
        return True

    def carry(self, segment: SegmentFile, *, in_doubt: bool) -> None:
        """Bring one segment to its end: stored, or set aside. Raises `Postponed`: another one comes first."""
        case = self._opened(segment, in_doubt=in_doubt)
        delays = _Delays(self._around.jitter)
        try:
            while not self._is_carried(case, delays):
                pass
        except _SetAside as reason:
            self._keep(case, reason)
            self._window.end(segment.id, ())
        self._progress.trouble = ""
        segment.unlink()
        self._window.forget(segment.id)

    def _opened(self, segment: SegmentFile, *, in_doubt: bool) -> Case:
        """Read a segment and make its content final: on the disk before anything of it is sent."""
        reading = reading_of(segment, self._core)
        standing = self._window.standing(segment.id)
        in_doubt = in_doubt or standing is not None
        if reading.damage:
            self._keep_damaged(segment, reading.content, reading.damage)
        verdicts = settled(reading, self._window, lambda: in_doubt and self._has_rows(reading))
        decided = final(reading, self._core, verdicts)
        if standing is None or decided.verdicts != standing.verdicts:
            kept = digests_kept(reading.deliveries, decided.verdicts)
            self._window.decide(segment.id, kept, decided.verdicts)
        if decided.content is not None:
            segment.replace(decided.content)
        return Case(
            file=segment,
            rows=decided.rows,
            received_ms=reading.received_ms,
            in_doubt=in_doubt,
            must_look=in_doubt or not decided.rows,
            deliveries=reading.deliveries,
            verdicts=decided.verdicts,
        )

    def _has_rows(self, reading: Reading) -> bool:
        """Ask until the store answers whether it holds rows of a segment about which nothing was decided."""
        delays = _Delays(self._around.jitter)
        held = Held(reading.file.id, reading.received_ms)
        while True:
            try:
                self._wait_until_quiet(held.segment)
                return bool(self._store.counts([held]))
            except StoreTrouble as trouble:
                fault = fault_of(trouble)
                self._progress.met(fault, trouble.label)
                self._around.sleep(next(delays.slow if fault in _SLOW else delays.fast))

    def _is_carried(self, case: Case, delays: _Delays) -> bool:
        """Make one step; whatever goes wrong, the next one starts with a count."""
        try:
            return self._step(case)
        except StoreTrouble as trouble:
            case.in_doubt = case.must_look = True
            self._weigh(case, trouble, delays)
            return False

    def _step(self, case: Case) -> bool:
        finding = self._look(case) if case.must_look else Finding(Found.NOTHING)
        if finding.found is Found.COMPLETE:
            self._finish(case)
            return True
        case.must_look = True
        if finding.found is Found.ODD:
            self._look_again(case, finding)
        elif finding.found is Found.MISSING or case.by_day:
            self._insert_days(case, finding.days)
        else:
            self._insert_whole(case)
        return False

    def _look(self, case: Case) -> Finding:
        """Count, once nothing can change the count any more."""
        if case.in_doubt:
            self._wait_until_quiet(case.file.id)
        counted = self._store.counts([case.held]).get(case.file.id, {}) if case.rows else {}
        if sum(counted.values()) == case.rows:
            return Finding(Found.COMPLETE)
        rows = outcome.rows_by_day(self._core.day_runs(case.file.read()))
        due = outcome.due_days(rows, now_s=self._around.now(), retention_days=self._around.retention_days)
        answered = set(rows) if case.answered else case.days_answered
        return outcome.judge(rows, counted, due=due, answered=answered)

    def _wait_until_quiet(self, segment: SegmentId) -> None:
        """Wait for statements whose answer was lost; kill those that take too long."""
        waited_s = 0.0
        for delay_s in backoff_s(self._around.jitter, first_s=FIRST_S, ceiling_s=1.0):
            if not self._store.running(query_id_of(str(segment))):
                return
            if waited_s >= KILL_AFTER_S:
                self._store.kill(query_id_of(str(segment)))
            self._around.sleep(delay_s)
            waited_s += delay_s

    def _insert_whole(self, case: Case) -> None:
        self._check_tries(case, case.token)
        token = case.token_of_whole()
        self._insert(case, case.file.path, token, case.rows)
        case.token += 1
        case.answered = True

    def _insert_days(self, case: Case, days: Iterable[str]) -> None:
        """Insert each of these days alone, out of a segment that holds nothing else."""
        content = case.file.read()
        runs = self._core.day_runs(content)
        for day in days:
            self._check_tries(case, case.day_tokens[day])
            keep = [(first, end) for first, end, of in runs if outcome.spelled(of) == day]
            part = self._around.repair_dir / f"{case.file.id}@{day}{''.join(case.file.path.suffixes)}"
            part.parent.mkdir(parents=True, exist_ok=True)
            write_durably(part, self._core.rewrite(content, keep, case.file.codec, BLOCK_ROWS_MAX))
            self._insert(case, part, case.token_of_day(day), sum(end - first for first, end in keep))
            case.day_tokens[day] += 1
            case.days_answered.add(day)
            part.unlink()

    def _insert(self, case: Case, path: Path, token: str, rows: int) -> None:
        """Send one INSERT. The engine must have read every row: a file cut short is a silent OK."""
        self._progress.inserts += 1
        read = self._store.insert(path, token=token, query_id=query_id_of(token))
        if read != rows:
            raise StoreTrouble(f"the store read {read} rows of segment {case.file.id}; expected {rows}")

    def _check_tries(self, case: Case, tokens: int) -> None:
        tries_max = TOKENS_MAX if case.in_doubt else TRIES_MAX
        if tokens >= tries_max:
            raise _SetAside(
                "short", f"rows are missing after {tokens} INSERTs that answered OK; expected {case.rows}"
            )

    def _look_again(self, case: Case, finding: Finding) -> None:
        """Some days hold neither none nor all of their rows. No rule of ours mends that."""
        case.odd_looks += 1
        self._alarm("odd", f"segment {case.file.id}: neither none nor all rows on {', '.join(finding.days)}")
        if case.odd_looks >= ODD_LOOKS_MAX:
            raise _SetAside("odd", f"neither none nor all rows are stored on {', '.join(finding.days)}")
        self._around.sleep(SLOWER_FIRST_S)

    def _finish(self, case: Case) -> None:
        """Fill the companion's possible hole, see everything onto the store's disk, know its deliveries."""
        if case.rows and case.in_doubt:
            self._store.refill_companion(case.held)
        self._store.sync()
        standing = self._window.standing(case.file.id)
        if standing is None or standing.is_pending:
            self._window.end(case.file.id, digests_kept(case.deliveries, case.verdicts))
            for one in case.duplicates:
                self._progress.duplicate(one.drain, sum(tally.received for tally in one.tallies))
        self._progress.stored(case.rows, case.received_ms, self._around.now())

    def _weigh(self, case: Case, trouble: StoreTrouble, delays: _Delays) -> None:
        """Decide how long to wait, whether to alarm, and whether the data is at fault."""
        fault = fault_of(trouble)
        self._progress.met(fault, trouble.label)
        limited.warning(f"store: {fault} {trouble.label}", "segment waits for the store", why=trouble.label)
        if fault is Fault.BY_DAY and not case.by_day:
            case.by_day = True
            return
        if fault is Fault.POISON and self._accepts_our_own():
            self._set_aside_if_absent(case, trouble)
        if fault in {Fault.HOLD, Fault.POISON}:
            self._alarm(fault, f"store refuses every segment: {trouble.label}")
        self._around.sleep(next(delays.slow if fault in _SLOW else delays.fast))

    def _accepts_our_own(self) -> bool:
        try:
            self._store.probe()
        except StoreTrouble:
            return False
        return True

    def _set_aside_if_absent(self, case: Case, trouble: StoreTrouble) -> None:
        """Poison is set aside whole, once it is sure that none of its rows is stored."""
        try:
            finding = self._look(case)
        except StoreTrouble:
            return
        if finding.found is Found.NOTHING:
            raise _SetAside("poison", str(trouble))

    def _keep(self, case: Case, reason: _SetAside) -> None:
        self._keep_bytes(case.file, case.file.read(), reason.cause, str(reason), case.rows)

    def _keep_damaged(self, file: SegmentFile, content: bytes, text: str) -> None:
        self._keep_bytes(file, content, "damaged", text, None)

    def _keep_bytes(self, file: SegmentFile, content: bytes, cause: str, text: str, rows: int | None) -> None:
        at = datetime.fromtimestamp(self._around.now(), UTC).isoformat(timespec="seconds")
        reason = Reason(segment=str(file.id), cause=cause, text=text, rows=rows, at=at)
        self._dead.keep(content, "".join(file.path.suffixes), reason)
        self._progress.set_aside(cause, rows or 0)
        self._alarm(cause, f"segment {file.id} was set aside in the dead letters")

    def _alarm(self, reason: str, text: str) -> None:
        self._progress.alarms += 1
        limited.error(f"writer: {reason}", text)


_SLOW = {Fault.SLOWER, Fault.HOLD, Fault.POISON}


class _Delays:
    """The two schedules of one segment."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self.fast: Iterator[float] = backoff_s(jitter, first_s=FIRST_S, ceiling_s=CEILING_S)
        self.slow: Iterator[float] = backoff_s(jitter, first_s=SLOWER_FIRST_S, ceiling_s=SLOWER_CEILING_S)
