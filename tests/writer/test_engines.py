"""The writer with real engines: after crashes, lost responses and used tokens every row is stored once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from receiver.dead_letters.directory import DeadLetters
from receiver.engine.store import Store
from receiver.redelivery.window import Window
from receiver.settings import Redelivery
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S, FakeFile, FakeJournal, open_ledger
from tests.support.segments import Segment, SegmentMaker, day_of, stored_days
from tests.support.server_process import Server

SLEEPS_MAX = 200


@dataclass
class EngineHarness:
    """A writer with a real store, embedded or over HTTP."""

    store: Store
    maker: SegmentMaker
    directory: Path
    sleeps: list[float] = field(default_factory=list)
    between_turns_s: float = 0.0
    """Time that passed while no segment had a turn."""

    def file(self, *ages_days: int) -> tuple[Segment, FakeFile]:
        segment = self.maker.make(*ages_days)
        return segment, FakeFile(segment.location.segment, segment.path)

    def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        if len(self.sleeps) > SLEEPS_MAX:
            raise Stopping

    def restart_with(self, *files: FakeFile, turns: int = 1) -> None:
        """Run a new writer that finds these segments in the journal."""
        environment = Environment(
            now=lambda: NOW_S + self.between_turns_s,
            monotonic=lambda: self.between_turns_s + sum(self.sleeps),
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
        )
        writer = Writer(
            FakeJournal([*files]),
            self.store,
            core=self.maker,
            window=Window(self.directory / "redelivery", Redelivery(), time.monotonic),
            ledger=open_ledger(self.directory),
            dead=DeadLetters(self.directory / "dead"),
            progress=Progress(),
            environment=environment,
        )
        for _ in range(turns):
            self.between_turns_s += 0.0 if writer.drain() else 60.0

    def insert(self, segment: Segment, token: str) -> None:
        name = f"{segment.location.segment}{token}"
        self.store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")

    def delete_rows(self, segment: Segment, condition: str = "1") -> None:
        """Delete rows but keep their tokens in the engine, as after a killed INSERT."""
        self.store.command(
            f"ALTER TABLE otel_traces DELETE WHERE SegmentSeq = {segment.location.segment.seq} "
            f"AND {condition} SETTINGS mutations_sync = 2"
        )

    def stored(self, segment: Segment) -> dict[str, int]:
        return stored_days(self.store, segment)

    def trace_count(self, segment: Segment) -> int:
        start = {"start": f"{segment.location.segment.seq:016x}"}
        rows = self.store.rows(
            "SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts "
            "WHERE startsWith(TraceId, {start:String})",
            start,
        )
        return int(rows[0][0])


@pytest.fixture(scope="module")
def embedded(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def over_http(server_url: str) -> Iterator[Store]:
    with engines.over_http(server_url, insert_timeout_s=2) as store:
        yield store


@pytest.fixture(params=["embedded", "over_http"])
def harness(request: pytest.FixtureRequest, maker: SegmentMaker, tmp_path: Path) -> EngineHarness:
    return EngineHarness(request.getfixturevalue(request.param), maker, tmp_path)


def test_new_segment_is_stored_and_deleted(harness: EngineHarness) -> None:
    segment, file = harness.file(0, 0, 1, 2)

    harness.restart_with(file)

    assert harness.stored(segment) == segment.days
    assert harness.trace_count(segment) == 4
    assert not file.path.exists()


OF_ITS_DAY = f"toYYYYMMDD(Timestamp, 'UTC') = {day_of(1)}"


@pytest.mark.parametrize(
    ("lose", "turns"),
    [
        pytest.param(lambda _harness, _segment: None, 1, id="nothing"),
        # More than one turn: the engine may remove an emptied part, and then its token, at any time.
        pytest.param(lambda harness, segment: harness.delete_rows(segment), 3, id="all rows"),
        pytest.param(lambda harness, segment: harness.delete_rows(segment, OF_ITS_DAY), 3, id="a day"),
        pytest.param(
            lambda harness, _segment: harness.store.command("TRUNCATE TABLE otel_traces_trace_id_ts"),
            1,
            id="rows of the companion table",
        ),
    ],
)
def test_rows_that_are_lost_between_insert_and_deletion_are_stored_once(
    harness: EngineHarness, lose: Callable[[EngineHarness, Segment], object], turns: int
) -> None:
    segment, file = harness.file(0, 0, 1, 2)
    harness.insert(segment, "#0")
    lose(harness, segment)

    harness.restart_with(file, turns=turns)

    assert harness.stored(segment) == segment.days
    assert harness.trace_count(segment) == 4
    assert not file.path.exists()


def test_partly_stored_day_becomes_a_dead_letter(harness: EngineHarness) -> None:
    segment, file = harness.file(0, 0)
    harness.insert(segment, "#0")
    harness.delete_rows(segment, "SpanId = '0000000000000001'")

    harness.restart_with(file, turns=60)

    assert [path.suffix for path in sorted((harness.directory / "dead").iterdir())] == [".json", ".lz4"]


def test_segment_of_over_a_hundred_days_is_stored_without_delaying_other_segments(
    harness: EngineHarness,
) -> None:
    many, many_file = harness.file(*range(0, -120, -1))  # days in the future do not expire
    other, other_file = harness.file(0)

    harness.restart_with(many_file, other_file)
    is_other_first = many_file.path.exists() and not other_file.path.exists()
    harness.restart_with(many_file, turns=8)

    assert is_other_first
    assert harness.stored(many) == many.days
    assert harness.trace_count(many) == 120
    assert harness.stored(other) == other.days
    assert not many_file.path.exists()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"kind": "answer_lost"}, id="applied, the answer lost"),
        pytest.param({"kind": "reset", "times": 3}, id="reset three times"),
        pytest.param({"kind": "body", "code": 241}, id="200 with an exception in the body"),
        pytest.param({"kind": "error", "code": 252, "text": "Too many parts"}, id="merges are behind"),
        pytest.param(
            {"kind": "error", "code": 252, "text": "Too many partitions for single INSERT block"},
            id="too many days at once",
        ),
        pytest.param({"kind": "slow", "seconds": 4.0}, id="not answered in time"),
        pytest.param({"kind": "hang"}, id="never answered: killed"),
    ],
)
def test_every_row_is_stored_once_after_a_server_fault(
    over_http: Store, server: Server, maker: SegmentMaker, tmp_path: Path, fault: dict[str, object]
) -> None:
    harness = EngineHarness(over_http, maker, tmp_path)
    segment, file = harness.file(0, 1, 1)
    server.inject_fault(**fault)  # type: ignore[arg-type]  # the dictionary contains the kind

    harness.restart_with(file, turns=60)

    assert harness.stored(segment) == segment.days
    assert not file.path.exists()


def test_row_that_violates_a_constraint_becomes_a_dead_letter(harness: EngineHarness) -> None:
    segment, file = harness.file(*[0] * 20)
    bad = f"TraceId = '{segment.location.segment.seq:016x}{7:016x}'"
    harness.store.command(f"ALTER TABLE otel_traces ADD CONSTRAINT poison CHECK NOT ({bad})")

    try:
        harness.restart_with(file, turns=30)
    finally:
        harness.store.command("ALTER TABLE otel_traces DROP CONSTRAINT poison")

    (letter,) = DeadLetters(harness.directory / "dead").listed()
    assert harness.stored(segment) == {day_of(0): 19}
    assert (letter.reason.cause, letter.reason.rows) == ("poison", 1)
    assert "VIOLATED_CONSTRAINT" in letter.reason.text
    assert not file.path.exists()
