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

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage import outcome
from receiver.storage.aside import Aside, SetAside, unreadable
from receiver.storage.backoff import FIRST_S, SLOWER_FIRST_S, Delays, backoff_s
from receiver.storage.case import Case, Core, Journal, Reading, SegmentFile, only_days
from receiver.storage.dead import DeadLetters, write_durably
from receiver.storage.faults import FAULT_OF, SLOW, TOO_LARGE, Fault, fault_of
from receiver.storage.outcome import Finding, Found
from receiver.storage.progress import Progress
from receiver.storage.sifting import Postponed, digests_kept, opened
from receiver.storage.store import Held, Store
from receiver.storage.surroundings import Stopping, Surroundings
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
REFUSALS_MAX = 5
"""Of one segment, while a row of our own is taken: then the segment is at fault, or lets others go first."""


def query_id_of(token: str) -> str:
    """Name the statement that carries this token. Of a segment's id: how all of its statements begin."""
    return f"trace-drain-{token}"


class _Resting(Exception):  # noqa: N818 - not an error: how a case gives up its turn from any depth
    """The store takes others, but not this segment."""


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
        self._progress = progress
        self._aside = Aside(dead, core, progress, around.now)
        self._around = around
        self._in_doubt: set[SegmentId] | None = None
        self._resting: dict[SegmentId, tuple[Case, Delays, float]] = {}
        """Segments the store takes no more, though it takes others, and until when they wait."""
        self._postponed: dict[SegmentId, SegmentId] = {}
        """Segments that hold a delivery of another one, and which they wait for."""
        self._inspect_at_s = around.now() + INSPECT_S

    def run(self) -> None:
        """Carry segments until stopped. Stopping between two steps loses nothing."""
        try:
            while True:
                if not self.drain():
                    self._around.sleep(IDLE_S)
                self._inspect_if_due()
                self._around.alive()
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
        """Carry every segment that is sealed now and not resting. How many had their turn."""
        sealed = list(self._journal.sealed())
        if self._in_doubt is None:
            self._in_doubt = {segment.id for segment in sealed}
            self._window.retain(self._in_doubt)
        segments = [segment for segment in sealed if not self._rests(segment.id)]
        # What was begun comes first: others may have to wait for it.
        segments.sort(key=lambda segment: self._window.standing(segment.id) is None)
        carried = 0
        for index, segment in enumerate(segments):
            self._around.sleep(0)
            self._tell(segments[index:])
            carried += self._carry_if_readable(segment, self._in_doubt)
        self._tell([one for one in sealed if one.id in self._resting or one.id in self._postponed])
        return carried

    def _tell(self, backlog: Sequence[SegmentFile]) -> None:
        self._window.tick()
        self._progress.backlog(backlog, self._around.now())
        self._progress.window(len(self._window), self._window.reach_s, self._window.shortfall)

    def _rests(self, segment: SegmentId) -> bool:
        """Whether it, or the one it waits for, has to let others go first."""
        one = self._postponed.get(segment, segment)
        return one in self._resting and self._around.now() < self._resting[one][2]

    def _carry_if_readable(self, segment: SegmentFile, in_doubt: set[SegmentId]) -> bool:
        """Our own disk's trouble with one segment must not keep the others waiting. False: it had no turn.

        What was known of it is gone with its case, so the next try counts before it sends anything.
        """
        self._postponed.pop(segment.id, None)
        try:
            self.carry(segment, in_doubt=segment.id in in_doubt)
        except Postponed as reason:
            self._postponed[segment.id] = reason.by
            return False
        except OSError as error:
            in_doubt.add(segment.id)
            self._progress.trouble = f"segment {segment.id}: {error.strerror}"
            self._progress.alarm(
                "disk", f"segment {segment.id} cannot be read or let go of: {error.strerror}"
            )
            self._around.sleep(SLOWER_FIRST_S)
            return False
        in_doubt.discard(segment.id)
        return True

    def carry(self, segment: SegmentFile, *, in_doubt: bool) -> None:
        """Bring one segment to its end: stored, or set aside. Or let it rest while others go first.

        Raises `Postponed` before anything of it is decided: another one comes first.
        """
        case, delays = self._begun(segment, in_doubt=in_doubt)
        try:
            while not self._is_carried(case, delays):
                pass
            segment.unlink()
            self._progress.stored(case.rows, case.received_ms, self._around.now())
        except SetAside as reason:
            self._aside.keep(case, reason)
            # Promised until it is gone: were the store to take it after all, a copy would be stored twice.
            segment.unlink()
            self._progress.rows += case.rows_stored
        except _Resting:
            self._resting[segment.id] = (case, delays, self._around.now() + next(delays.slow))
            return
        self._window.forget(segment.id)
        self._progress.trouble = ""

    def _begun(self, segment: SegmentFile, *, in_doubt: bool) -> tuple[Case, Delays]:
        if segment.id in self._resting:
            case, delays, _ = self._resting.pop(segment.id)
            return case, delays
        case = opened(
            segment,
            self._core,
            self._window,
            in_doubt=in_doubt,
            has_rows=self._has_rows,
            on_damage=self._aside.keep_damaged,
        )
        return case, Delays(self._around.jitter)

    def _has_rows(self, reading: Reading) -> bool:
        """Ask until the store answers whether it holds rows of a segment about which nothing was decided."""
        delays = Delays(self._around.jitter)
        held = Held(reading.file.id, reading.received_ms)
        while True:
            try:
                self._around.alive()
                self._wait_until_quiet(held.segment)
                return bool(self._store.counts([held]))
            except StoreTrouble as trouble:
                fault = fault_of(trouble)
                self._progress.met(fault, trouble.label)
                if fault is Fault.HOLD:
                    self._progress.alarm(fault, f"store does not answer for a segment: {trouble.label}")
                self._around.sleep(next(delays.slow if fault in SLOW else delays.fast))
                self._inspect_if_due()

    def _is_carried(self, case: Case, delays: Delays) -> bool:
        """Make one step; whatever goes wrong, the next one starts with a count."""
        try:
            return self._step(case)
        except StoreTrouble as trouble:
            case.in_doubt = case.must_look = True
            self._weigh(case, trouble, delays)
            return False

    def _step(self, case: Case) -> bool:
        self._around.alive()
        finding = self._look(case) if case.must_look else Finding(Found.NOTHING)
        if finding.found is Found.COMPLETE:
            self._finish(case)
            return True
        case.must_look = True
        if finding.found is Found.ODD:
            self._look_again(case, finding)
        elif finding.found is Found.MISSING or case.by_day:
            self._insert_days(case, finding)
        else:
            self._insert_whole(case, finding)
        return False

    def _look(self, case: Case) -> Finding:
        """Count, once nothing can change the count any more. In doubt one day may be there for another."""
        if case.in_doubt:
            self._wait_until_quiet(case.file.id)
        counted = self._store.counts([case.held]).get(case.file.id, {}) if case.rows else {}
        case.rows_stored = sum(counted.values())
        is_sum_right = case.rows_stored == case.rows
        if is_sum_right and not (case.rows and case.in_doubt):
            return Finding(Found.COMPLETE)
        try:
            rows = outcome.rows_by_day(self._core.day_runs(case.file.read()))
        except ValueError as reason:
            if is_sum_right:
                return Finding(Found.COMPLETE)
            if not counted and not case.by_day:
                return Finding(Found.NOTHING)
            raise unreadable(case, reason) from reason
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
            self._inspect_if_due()
            self._around.alive()
            waited_s += delay_s

    def _insert_whole(self, case: Case, finding: Finding) -> None:
        if case.token >= self._tries_max(case):
            text = f"rows are missing after {case.token} INSERTs that answered OK; expected {case.rows}"
            raise self._given_up(case, finding, "short", text)
        case.day = ""
        self._insert(case, case.file.path, case.token_of_whole(), case.rows)
        case.token += 1
        case.answered = True

    def _insert_days(self, case: Case, finding: Finding) -> None:
        """Insert each missing day alone, out of a segment that holds nothing else."""
        for day, content, rows in self._cut(case, self._days_to_try(case, finding)):
            part = self._around.repair_dir / f"{case.file.id}@{day}{''.join(case.file.path.suffixes)}"
            part.parent.mkdir(parents=True, exist_ok=True)
            write_durably(part, content)
            case.day = day
            self._insert(case, part, case.token_of_day(day), rows)
            case.day_tokens[day] += 1
            case.days_answered.add(day)
            part.unlink()

    def _days_to_try(self, case: Case, finding: Finding) -> list[str]:
        """Leave out the days that were given up. When no other is missing, those are set aside."""
        tries_max = self._tries_max(case)
        tired = {day for day in finding.days if case.day_tokens[day] >= tries_max}
        days = [day for day in finding.days if day not in tired | case.days_refused.keys()]
        if finding.days and not days:
            refused = next((case.days_refused[day] for day in finding.days if day in case.days_refused), None)
            text = f"rows of {', '.join(finding.days)} are missing after {tries_max} INSERTs that answered OK"
            raise self._given_up(case, finding, "poison" if refused else "short", refused or text)
        return days

    def _cut(self, case: Case, days: Iterable[str]) -> Iterator[tuple[str, bytes, int]]:
        """Cut single days out of a segment: the day, its content, its rows."""
        content = case.file.read()
        try:
            for day in days:
                yield day, *only_days(content, [day], self._core, case.file.codec)
        except ValueError as reason:
            raise unreadable(case, reason) from reason

    def _insert(self, case: Case, path: Path, token: str, rows: int) -> None:
        """Send one INSERT. The engine must have read every row: a file cut short is a silent OK."""
        self._progress.inserts += 1
        self._around.alive()
        read = self._store.insert(path, token=token, query_id=query_id_of(token))
        self._around.alive()
        if read != rows:
            raise StoreTrouble(f"the store read {read} rows of segment {case.file.id}; expected {rows}")

    def _tries_max(self, case: Case) -> int:
        return TOKENS_MAX if case.in_doubt else TRIES_MAX

    def _given_up(self, case: Case, finding: Finding, cause: str, text: str) -> SetAside:
        """Close what is stored of it as if it were all, for the rest goes to the dead letters."""
        if case.rows_stored:
            self._close(case)
        return SetAside(cause, text, days=finding.days if finding.found is Found.MISSING else ())

    def _look_again(self, case: Case, finding: Finding) -> None:
        """Some days hold neither none nor all of their rows. No rule of ours mends that."""
        case.odd_looks += 1
        self._progress.alarm(
            "odd", f"segment {case.file.id}: neither none nor all rows on {', '.join(finding.days)}"
        )
        if case.odd_looks >= ODD_LOOKS_MAX:
            text = f"neither none nor all rows are stored on {', '.join(finding.days)}"
            raise self._given_up(case, finding, "odd", text)
        self._around.sleep(SLOWER_FIRST_S)

    def _close(self, case: Case) -> None:
        """Fill the companion's possible hole, and see everything onto the store's disk."""
        if case.rows and case.in_doubt:
            self._store.refill_companion(case.held)
        self._store.sync()

    def _finish(self, case: Case) -> None:
        """See everything onto the store's disk, then know its deliveries."""
        self._close(case)
        standing = self._window.standing(case.file.id)
        if standing is None or standing.is_pending:
            self._window.end(case.file.id, digests_kept(case.deliveries, case.verdicts))
            for one in case.duplicates:
                self._progress.duplicate(one.drain, sum(tally.received for tally in one.tallies))

    def _weigh(self, case: Case, trouble: StoreTrouble, delays: Delays) -> None:
        """Decide how long to wait, whether to alarm, and whether the data is at fault."""
        fault = fault_of(trouble)
        self._progress.met(fault, trouble.label)
        self._progress.backlog(list(self._journal.sealed()), self._around.now())
        limited.warning(f"store: {fault} {trouble.label}", "segment waits for the store", why=trouble.label)
        if fault is Fault.BY_DAY and not case.by_day:
            case.by_day = True
            return
        is_too_large = trouble.code in TOO_LARGE and self._accepts_our_own()
        if fault in {Fault.HOLD, Fault.POISON} or is_too_large:
            self._refused(case, trouble, fault)
        self._around.sleep(next(delays.slow if fault in SLOW else delays.fast))
        self._inspect_if_due()

    def _refused(self, case: Case, trouble: StoreTrouble, fault: Fault) -> None:
        """Tell by a row of our own whether the store refuses everything, or this segment."""
        if not self._accepts_our_own():
            self._progress.alarm(fault, f"store refuses every segment: {trouble.label}")
            return
        case.refusals += 1
        is_strange = trouble.code not in {None, *FAULT_OF} and case.refusals >= REFUSALS_MAX
        if fault is Fault.POISON or is_strange:
            self._blame(case, trouble)
        self._progress.alarm(fault, f"store refuses segment {case.file.id}: {trouble.label}")
        if case.refusals >= REFUSALS_MAX:
            raise _Resting

    def _accepts_our_own(self) -> bool:
        try:
            self._store.probe()
        except StoreTrouble:
            return False
        return True

    def _blame(self, case: Case, trouble: StoreTrouble) -> None:
        """Poison is set aside once it is sure that it is not stored: one day, after the next look, or all."""
        if case.day:
            case.days_refused[case.day] = str(trouble)
            return
        try:
            finding = self._look(case)
            if finding.found is Found.NOTHING:
                raise self._given_up(case, finding, "poison", str(trouble))
        except StoreTrouble:
            return
