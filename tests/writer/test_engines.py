"""The writer with real engines: after crashes, lost responses and used tokens every row is stored once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from receiver.dead_letters.letter_files import DeadLetters
from receiver.engine.store import Store
from receiver.redelivery.window import Window
from receiver.settings import Redelivery
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S, FakeFile, FakeJournal, open_ledger
from tests.support.segments import Segment, SegmentMaker, day_of
from tests.support.server_process import Server

NAPS_MAX = 200


@dataclass
class Desk:
    """A writer with a real store."""

    store: Store
    maker: SegmentMaker
    directory: Path
    naps: list[float] = field(default_factory=list)
    between_turns_s: float = 0.0
    """Time that passed while no segment had a turn."""

    def file(self, *ages_days: int) -> tuple[Segment, FakeFile]:
        segment = self.maker.make(*ages_days)
        return segment, FakeFile(segment.held.segment, segment.path)

    def sleep(self, delay_s: float) -> None:
        self.naps.append(delay_s)
        if len(self.naps) > NAPS_MAX:
            raise Stopping

    def restart_with(self, *files: FakeFile, turns: int = 1) -> None:
        """Run a writer that finds these segments at start."""
        around = Environment(
            now=lambda: NOW_S + self.between_turns_s,
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
            environment=around,
        )
        for _ in range(turns):
            self.between_turns_s += 0.0 if writer.drain() else 60.0

    def insert(self, segment: Segment, token: str) -> None:
        name = f"{segment.held.segment}{token}"
        self.store.insert(segment.path, token=name, query_id=f"trace-drain-{name}")

    def forget(self, segment: Segment, condition: str = "1") -> None:
        """Delete rows but keep their tokens in the engine, as a killed INSERT may do."""
        self.store.command(
            f"ALTER TABLE otel_traces DELETE WHERE SegmentSeq = {segment.held.segment.seq} AND {condition} "
            "SETTINGS mutations_sync = 2"
        )

    def stored(self, segment: Segment) -> dict[str, int]:
        return dict(self.store.counts([segment.held]).get(segment.held.segment, {}))

    def traces(self, segment: Segment) -> int:
        start = {"start": f"{segment.held.segment.seq:016x}"}
        rows = self.store.rows(
            "SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts "
            "WHERE startsWith(TraceId, {start:String})",
            start,
        )
        return int(rows[0][0])


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> SegmentMaker:
    return SegmentMaker(tmp_path_factory.mktemp("segments"))


@pytest.fixture(scope="module")
def embedded(engine_dir: Path) -> Iterator[Store]:
    with engines.embedded(engine_dir) as store:
        yield store


@pytest.fixture(scope="module")
def over_http(server_url: str) -> Iterator[Store]:
    with engines.over_http(server_url, insert_timeout_s=2) as store:
        yield store


@pytest.fixture(params=["embedded", "over_http"])
def desk(request: pytest.FixtureRequest, maker: SegmentMaker, tmp_path: Path) -> Desk:
    return Desk(request.getfixturevalue(request.param), maker, tmp_path)


def test_new_segment_is_stored_and_deleted(desk: Desk) -> None:
    segment, file = desk.file(0, 0, 1, 2)

    desk.restart_with(file)

    assert desk.stored(segment) == segment.days
    assert desk.traces(segment) == 4
    assert not file.path.exists()


def test_crash_between_insert_and_deletion_stores_no_row_twice(desk: Desk) -> None:
    segment, file = desk.file(0, 1)
    desk.insert(segment, "#0")

    desk.restart_with(file)

    assert desk.stored(segment) == segment.days
    assert not file.path.exists()


def test_rows_lost_with_a_used_token_are_stored_with_the_next(desk: Desk) -> None:
    segment, file = desk.file(0, 0, 1)
    desk.insert(segment, "#0")
    desk.forget(segment)

    desk.restart_with(file)

    assert desk.stored(segment) == segment.days


def test_day_lost_with_a_used_token_is_inserted_separately(desk: Desk) -> None:
    segment, file = desk.file(0, 0, 1, 2)
    desk.insert(segment, "#0")
    desk.forget(segment, f"toYYYYMMDD(Timestamp, 'UTC') = {day_of(1)}")

    desk.restart_with(file)

    assert desk.stored(segment) == segment.days
    assert not file.path.exists()


def test_companion_table_that_lost_a_part_is_refilled(desk: Desk) -> None:
    segment, file = desk.file(0, 1)
    desk.insert(segment, "#0")
    desk.store.command("TRUNCATE TABLE otel_traces_trace_id_ts")

    desk.restart_with(file)

    assert desk.traces(segment) == 2


def test_partly_stored_day_becomes_a_dead_letter(desk: Desk) -> None:
    segment, file = desk.file(0, 0)
    desk.insert(segment, "#0")
    desk.forget(segment, "SpanId = '0000000000000001'")

    desk.restart_with(file)

    assert [path.suffix for path in sorted((desk.directory / "dead").iterdir())] == [".json", ".lz4"]


def test_segment_of_over_a_hundred_days_is_stored_without_delaying_others(desk: Desk) -> None:
    many, many_file = desk.file(*range(0, -120, -1))  # days in the future do not expire
    other, other_file = desk.file(0)

    desk.restart_with(many_file, other_file)
    is_other_first = many_file.path.exists() and not other_file.path.exists()
    desk.restart_with(many_file, turns=8)

    assert is_other_first
    assert desk.stored(many) == many.days
    assert desk.traces(many) == 120
    assert desk.stored(other) == other.days
    assert not many_file.path.exists()


def test_companion_table_of_over_a_hundred_days_is_refilled(desk: Desk) -> None:
    many, many_file = desk.file(*range(0, -120, -1))
    content = many_file.read()
    desk.restart_with(many_file, turns=8)
    desk.store.command("TRUNCATE TABLE otel_traces_trace_id_ts")
    many_file.path.write_bytes(content)

    desk.restart_with(many_file, turns=8)

    assert desk.stored(many) == many.days
    assert desk.traces(many) == 120
    assert not many_file.path.exists()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"kind": "lost"}, id="applied, the answer lost"),
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
    desk = Desk(over_http, maker, tmp_path)
    segment, file = desk.file(0, 1, 1)
    server.meet(**fault)  # type: ignore[arg-type]  # the table's first value is the kind

    desk.restart_with(file, turns=4)

    assert desk.stored(segment) == segment.days
    assert not file.path.exists()


def test_rows_that_violate_a_constraint_become_a_dead_letter(desk: Desk) -> None:
    segment, file = desk.file(*[0] * 20)
    bad = f"SegmentSeq = {segment.held.segment.seq} AND SpanId = '{8:016x}'"
    desk.store.command(f"ALTER TABLE otel_traces ADD CONSTRAINT poison CHECK NOT ({bad})")

    try:
        desk.restart_with(file, turns=5)
    finally:
        desk.store.command("ALTER TABLE otel_traces DROP CONSTRAINT poison")

    (letter,) = DeadLetters(desk.directory / "dead").letters()
    assert desk.stored(segment) == {day_of(0): 19}
    assert letter.reason.left_out == ((7, 8),)
    assert "VIOLATED_CONSTRAINT" in letter.reason.text
