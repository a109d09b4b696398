"""Writer test harness: real segments whose deliveries are identifiable in the store, and fault injection.

Delivery number n has n + 1 spans, all of them n days old. So the rows of a day are copies of one delivery.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from receiver import transcode
from receiver.dead_letters.directory import DeadLetter, DeadLetters
from receiver.durable.files import Disk
from receiver.ledger.ledger import Ledger, Sums, read_sums
from receiver.ledger.line_sums import Counts
from receiver.ledger.recorded import RecordedSegments
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.redelivery.window import Window
from receiver.settings import Ledger as LedgerLimits
from receiver.settings import Redelivery, Settings
from receiver.writer import outcome
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support.fake_clickhouse import DAY_S, NOW_S, FakeFile, FakeJournal, MemoryStore, Rows
from tests.support.faulty_disk import WRITE_CALLS
from tests.support.segments import DIGEST_KEY, day_of

DECISIVE_CALLS = frozenset({"rename", "sync_data", "unlink"})
"""Calls that make a change visible or durable. `tests.faults.test_store_life` injects faults at all calls."""

P = ParamSpec("P")
T = TypeVar("T")
SLEEPS_MAX = 400
EPOCH = 7
POLICY = transcode.policy(Settings())


class Killed(BaseException):
    """Raised where the simulated process is killed."""


@dataclass
class FaultInjector:
    """Counts the steps of a writer and injects a kill or an error at one of them.

    After a kill the writer changes nothing more on the disk or in the store.
    """

    steps_left: int = -1
    """0: killed; negative: no fault."""
    steps: int = 0
    ends_with: Callable[[], BaseException] = Killed

    def step(self) -> None:
        self.steps += 1
        self.steps_left -= self.steps_left > 0
        if self.steps_left == 0:
            fault = self.ends_with()
            self.steps_left -= not isinstance(fault, Killed)
            raise fault

    def between_balances(self, call: Callable[P, T]) -> Callable[P, T]:
        """Wrap a call so that a fault can be injected before and after it."""

        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            self.step()
            result = call(*args, **kwargs)
            self.step()
            return result

        return wrapper

    def while_alive(self, call: Callable[P, T]) -> Callable[P, T]:
        """Wrap a call so that it does nothing during cleanup after a kill."""

        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.steps_left == 0:
                raise Killed
            return call(*args, **kwargs)

        return wrapper


def delivery(number: int, drain: str = "drain") -> Delivery:
    spans = [
        {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{span + 1:016x}",
            "startTimeUnixNano": str((NOW_S - number * DAY_S) * 10**9),
        }
        for span in range(number + 1)
    ]
    return delivery_of(spans, drain)


def delivery_of(spans: Sequence[Mapping[str, str]], drain: str = "drain") -> Delivery:
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    return Delivery(drain, body, ContentKind.JSON, (), NOW_S * 10**9, strict=False, body_bytes_max=1 << 20)


def segment_of(seq: int, *records: Sequence[int], drain: str = "drain") -> bytes:
    """Return a sealed segment whose records contain these deliveries."""
    return sealed(seq, *([delivery(number, drain) for number in record] for record in records))


def sealed(seq: int, *records: Sequence[Delivery]) -> bytes:
    """Return a sealed segment with these records."""
    content = b"".join(
        transcode.commit(POLICY, list(record), SegmentId(EPOCH, seq), DIGEST_KEY).record for record in records
    )
    return content + transcode.footer(content)


def rotted(path: Path, *, record: int) -> int:
    """Damage the payload of a record. Returns how many rows it has."""
    content = bytearray(path.read_bytes())
    damaged = transcode.scan(bytes(content)).records[record]
    content[damaged.offset + damaged.length - 3] ^= 0xFF
    path.write_bytes(content)
    return damaged.rows


def rows_in(path: Path) -> Rows:
    """Return the rows by day that an INSERT of a segment file adds."""
    content = path.read_bytes()
    scan = transcode.scan(content)
    days = outcome.rows_by_day(transcode.day_runs(content, 0))
    return {day: (SegmentId(scan.epoch, scan.seq), rows) for day, rows in days.items()}


@dataclass
class Harness:
    """A journal, a store in memory, and a writer that can be restarted."""

    directory: Path
    script: list[str] = field(default_factory=list)
    limits: Redelivery = field(default_factory=Redelivery)
    exempt_drains: frozenset[str] = frozenset()
    injector: FaultInjector = field(default_factory=FaultInjector)
    progress: Progress = field(default_factory=Progress)
    monotonic_s: float = 0.0
    follows: bool = False
    """Whether recorded segments are logged for the metrics of spans."""
    files: list[FakeFile] = field(default_factory=list)
    issued: set[int] = field(default_factory=set)
    sent: dict[SegmentId, list[tuple[str, int]]] = field(default_factory=dict)
    """Drain and number of every copy, by segment."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(*self.script)
        self.store.rows_of = rows_in
        self._current: Writer | None = None
        self.sleeps = 0

    def add(self, *records: Sequence[int], drain: str = "drain") -> FakeFile:
        """Add a sealed segment to the journal."""
        seq = len(self.files) + 1
        file = FakeFile.make(self.directory, segment_of(seq, *records, drain=drain), seq=seq)
        self.files.append(file)
        self.issued |= {number for record in records for number in record}
        self.sent[file.id] = [(drain, number) for record in records for number in record]
        return file

    def sleep(self, delay_s: float) -> None:
        self.monotonic_s += delay_s
        self.sleeps += bool(delay_s)
        if self.sleeps > SLEEPS_MAX:
            raise Stopping

    def opened_window(self, ledger: Ledger) -> Window:
        return Window(
            self.directory / "redelivery",
            self.limits,
            lambda: self.monotonic_s,
            exempt_drains=self.exempt_drains,
            extent_min=ledger.window,
        )

    def opened_ledger(self) -> Ledger:
        ledger = Ledger(self.directory / "ledger", LedgerLimits(), lambda: NOW_S, is_first=True)
        if self.follows:
            ledger.recorded = RecordedSegments(self.directory / "followed" / "segments.log")
        return ledger

    def start(self, order: Sequence[FakeFile] | None = None, *, newer: Sequence[FakeFile] = ()) -> Writer:
        """Start a writer that knows only the disk and the store. `newer`: segments of a newer version."""
        environment = Environment(
            now=lambda: NOW_S + self.monotonic_s,
            monotonic=lambda: self.monotonic_s,
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
        )
        ledger = self.opened_ledger()
        self._current = Writer(
            FakeJournal(self.files if order is None else list(order), [file.id for file in newer]),
            self.store,
            core=transcode,
            window=self.opened_window(ledger),
            ledger=ledger,
            dead=DeadLetters(self.directory / "dead"),
            progress=self.progress,
            environment=environment,
        )
        return self._current

    def drain(self) -> None:
        """Run the writer until the journal is empty."""
        current = self.current
        for _ in range(200):
            if not current.drain():
                self.sleep(1.0)
            if not any(file.path.exists() for file in self.files):
                return
        raise AssertionError("the journal is not empty")

    def run_turns(self, count: int) -> None:
        """Run the writer `count` times, with a pause in between that is longer than any retry delay."""
        for _ in range(count):
            self.current.drain()
            self.sleep(60.0)

    @property
    def current(self) -> Writer:
        """The running writer; started if there is none."""
        return self._current or self.start()

    def kill(self) -> None:
        self._current = None

    @property
    def recorded(self) -> Counts:
        """Sum of all lines of the ledger on the disk."""
        total = Counts()
        for counts in self._sums()[0].lines.values():
            total = total.plus(counts)
        return total

    @property
    def is_accounted_for(self) -> bool:
        """Whether every sent span is in the ledger or in the journal exactly once."""
        sums, may_wait = self._sums()
        waiting = [file.id for file in self.files if file.path.exists() and file.id not in may_wait]
        in_journal = sum(number + 1 for segment in waiting for _, number in self.sent[segment])
        received = sum(number + 1 for copies in self.sent.values() for _, number in copies)
        is_balanced = all(not counts.unaccounted for counts in sums.lines.values())
        return is_balanced and self.recorded.received + in_journal == received

    @property
    def is_ledger_exact(self) -> bool:
        """Whether the ledger has the counts that follow from the sent deliveries, with an empty journal."""
        copies = Counter(copy for copies in self.sent.values() for copy in copies)
        received = sum((number + 1) * count for (_, number), count in copies.items())
        kept = {copy: count if copy[0] in self.exempt_drains else 1 for copy, count in copies.items()}
        stored = sum((number + 1) * count for (_, number), count in kept.items())
        return self.recorded == Counts(received=received, stored=stored, duplicate=received - stored)

    def _sums(self) -> tuple[Sums, set[SegmentId]]:
        return read_sums(self.directory / "ledger", LedgerLimits())

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters."""
        return DeadLetters(self.directory / "dead").listed()

    @property
    def copies(self) -> dict[int, float]:
        """Delivery number → how often its rows are stored."""
        rows: Counter[str] = Counter()
        for _, day, count in self.store.parts:
            rows[day] += count
        return {number: rows[day_of(number)] / (number + 1) for number in self.issued}

    @property
    def is_exact(self) -> bool:
        return set(self.copies.values()) <= {1.0}


def inject_faults(
    injector: FaultInjector,
    monkeypatch: Any,  # noqa: ANN401 - pytest's MonkeyPatch
    calls: Collection[str] = DECISIVE_CALLS,
) -> None:
    """Inject faults around these calls that change files and every change of the store."""
    inject_disk_faults(injector, monkeypatch, calls)
    for name in ("_insert_ok", "insert", "counts", "sync", "refill_companion"):
        monkeypatch.setattr(MemoryStore, name, injector.between_balances(getattr(MemoryStore, name)))


def inject_disk_faults(
    injector: FaultInjector,
    monkeypatch: Any,  # noqa: ANN401 - pytest's MonkeyPatch
    calls: Collection[str] = DECISIVE_CALLS,
) -> None:
    """Inject faults around these calls that change files, and change no file after a kill."""
    for name in ("replace", "unlink"):
        monkeypatch.setattr(FakeFile, name, injector.between_balances(getattr(FakeFile, name)))
    for name in WRITE_CALLS:
        wrap = injector.between_balances if name in calls else injector.while_alive
        monkeypatch.setattr(Disk, name, wrap(getattr(Disk, name)))


def killed_at_each_step(
    directory: Path, prepare: Callable[[Harness], object], steps: Iterable[int] = range(1, 1_000)
) -> Iterator[tuple[str, Harness]]:
    """Yield a harness whose writer was killed, for each step, until the writer finishes before the kill.

    `prepare` adds the segments. The text that is yielded with the harness names the step.
    """
    injector = FaultInjector()
    with pytest.MonkeyPatch.context() as patch:
        inject_faults(injector, patch)
        for step in steps:
            harness = _harness_in(directory / str(step), injector, prepare)
            injector.steps_left = step
            with suppress(Killed):
                harness.start().drain()
                harness.drain()
                return
            injector.steps_left = -1
            yield f"killed at step {step}", harness
    raise AssertionError("the writer was killed at every step that was tried")


def refused_at_each_step(
    directory: Path, prepare: Callable[[Harness], object], run: Callable[[Harness], object], error: OSError
) -> Iterator[tuple[str, Harness]]:
    """Yield a harness that ran while the disk refused one call, for each call of the run.

    The text that is yielded with the harness names the call.
    """
    injector = FaultInjector(ends_with=lambda: error)
    with pytest.MonkeyPatch.context() as patch:
        inject_disk_faults(injector, patch)
        for step in range(1, 1_000):
            harness = _harness_in(directory / str(step), injector, prepare)
            harness.start()
            injector.steps_left = step
            run(harness)
            is_over, injector.steps_left = injector.steps_left > 0, -1
            yield f"refused at step {step}", harness
            if is_over:
                return
    raise AssertionError("a call was refused at every step that was tried")


def _harness_in(directory: Path, injector: FaultInjector, prepare: Callable[[Harness], object]) -> Harness:
    directory.mkdir()
    harness = Harness(directory, injector=injector)
    prepare(harness)
    return harness
