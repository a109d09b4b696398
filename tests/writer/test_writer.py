"""The writer with a store that loses, delays or refuses INSERTs, or whose counts contradict its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.environment import Stopping
from receiver.writer.progress import WaitingUnits
from tests.support.fake_clickhouse import TODAY, FakeFile, segment_of
from tests.support.segments import day_of
from tests.support.writer_harness import ID, TWO_DAYS, WriterHarness

TOO_MANY_DAYS = "error:252 Too many partitions for single INSERT block"
UNKNOWN_CODE = "error:271 data compressed with different methods"
EXPIRED = segment_of([TODAY - 31] * 10)


def test_segment_is_inserted_counted_synced_and_deleted(harness: WriterHarness) -> None:
    file = harness.file(TWO_DAYS)

    harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.store.events == ["count", "sync"]
    assert sum(harness.stored.values()) == 500
    assert not file.path.exists()


def test_segments_are_inserted_oldest_first_without_a_pause(harness: WriterHarness) -> None:
    for seq in (1, 2, 3):
        harness.file(segment_of([TODAY]), seq=seq)

    assert harness.writer.drain() == 3

    assert [token.partition("#")[0][-1] for token in harness.store.tokens] == ["1", "2", "3"]
    assert harness.slept == []


def test_segments_found_at_start_are_counted_before_an_insert(harness: WriterHarness) -> None:
    file = harness.file(TWO_DAYS)
    found = harness.store.rows_of(file.path)
    harness.store.parts = [(segment, day, rows) for day, (segment, rows) in found.items()]

    harness.writer.drain()

    assert harness.store.tokens == []
    assert harness.store.events == ["count", "refill 1", "sync"]
    assert not file.path.exists()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the store does with the INSERTs of a segment, and the result once the segment is deleted."""

    script: Sequence[str] = ()
    content: bytes = TWO_DAYS
    in_doubt: bool = False
    is_probe_refused: bool = False
    stored: Sequence[int] = (200, 300)
    """Stored rows of each day, in ascending order."""
    dead: Sequence[tuple[str, int]] = ()
    """Cause and rows of each dead letter."""
    tokens: str | None = None
    """Tokens of the INSERTs: see `WriterHarness.tokens`; `None`: any."""
    slept: Sequence[float] | None = None
    """Pauses of the writer; `None`: any."""
    between_turns_s: tuple[float, float] = (0.0, 1_000.0)
    """Limits of the time that passed while the segment waited for its next turn."""
    is_refilled: bool = False
    """Whether the companion table must be refilled."""
    alarms: int | None = None
    """`None`: any number."""


CASES = {
    "applied, response lost: not sent again": Case(script=["answer_lost"], tokens="#0", is_refilled=True),
    "network error: the same token again": Case(script=["error:210"], tokens="#0 #0", is_refilled=True),
    "token recorded but rows lost: the next token": Case(
        script=["tokens_without_rows"], tokens="#0 #0 #1", is_refilled=True
    ),
    "rows of two INSERTs lost": Case(
        script=["tokens_without_rows", "ok", "tokens_without_rows"], tokens="#0 #0 #1 #1 #2", is_refilled=True
    ),
    "missing days have their own tokens": Case(script=["tokens_and_first_day"], tokens="#0 piece#0"),
    "INSERT of missing days is repeated": Case(
        script=["tokens_and_first_day", "tokens_without_rows"], tokens="#0 piece#0 piece#0 piece#1"
    ),
    "INSERT that still runs is awaited": Case(script=["delayed:3"], tokens="#0", slept=[0.1, 0.1, 0.2, 0.4]),
    "rows that vanish twice are dead": Case(
        script=["ok_without_rows"] * 9, tokens="#0 #1", stored=[], dead=[("short", 500)], alarms=1
    ),
    "in doubt: a limited number of tokens": Case(
        script=["ok_without_rows"] * 99,
        in_doubt=True,
        tokens="#0 #1 #2 #3 #4 #5 #6 #7",
        stored=[],
        dead=[("short", 500)],
    ),
    "vanishing day is inserted as often as a segment": Case(
        script=["first_day", *["ok_without_rows"] * 20],
        tokens="#0 piece#0 piece#1",
        stored=[300],
        dead=[("short", 200)],
    ),
    "partly stored day": Case(
        script=["half_a_day"], tokens="#0", stored=[150], dead=[("odd", 350)], alarms=3
    ),
    "partly stored day is not refused": Case(script=["half_a_day:70"], stored=[150], dead=[("odd", 350)]),
    "more rows than were sent": Case(script=["applied_twice"], stored=[400, 600], dead=[("odd", 0)]),
    "rows that may have expired are not required": Case(
        content=EXPIRED, script=["ok_without_rows"], tokens="#0", stored=[]
    ),
    "rows that may have expired are inserted": Case(content=EXPIRED, in_doubt=True, stored=[10]),
    "day that may have expired is inserted once": Case(
        content=segment_of([TODAY - 31] * 10 + [TODAY] * 200),
        script=[TOO_MANY_DAYS, "ok", "ok_without_rows"],
        tokens="#0 piece#0 piece#0",
        stored=[200],
    ),
    "refused as a whole: stored in pieces": Case(script=["error:70 cannot convert"]),
    "stored rows are never refused": Case(script=["stored_but_refused"], tokens="#0"),
    "missing days after a refusal that does not recur": Case(script=["first_day:70"]),
    "single day refused as too many days is delayed": Case(
        content=segment_of([TODAY]), script=[TOO_MANY_DAYS] * 8, stored=[1], between_turns_s=(6.0, 1_000.0)
    ),
    "unknown code: refused after several failures": Case(
        content=segment_of([TODAY]),
        script=[UNKNOWN_CODE] * 9,
        tokens="#0 #0 #0 #0 #0",
        stored=[],
        dead=[("poison", 1)],
        slept=[],
        between_turns_s=(2.0 + 4.0 + 8.0 + 16.0, 1_000.0),
    ),
    "unknown code: its pieces are refused at once": Case(
        script=[UNKNOWN_CODE] * 9, between_turns_s=(0.0, 2.0 + 4.0 + 8.0 + 16.0 + 4.0)
    ),
    "unknown code while a probe row is refused": Case(script=["error:271"] * 9, is_probe_refused=True),
    "no row is dead while a probe row is refused": Case(
        script=["error:53", "error:53"], is_probe_refused=True, slept=[2.0, 4.0], alarms=2
    ),
    "brief failure: short delays": Case(
        script=["error:210"] * 3, is_probe_refused=True, slept=[0.1, 0.2, 0.4]
    ),
    "overload: long delays": Case(script=["error:243"] * 3, is_probe_refused=True, slept=[2.0, 4.0, 8.0]),
    "store out of memory": Case(script=["error:241"] * 5, is_probe_refused=True, alarms=0),
    "segment without rows": Case(content=segment_of([]), tokens="", stored=[]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_row_is_stored_once_or_in_one_dead_letter(harness: WriterHarness, case: Case) -> None:
    file = harness.file(case.content)
    harness.store.script = list(case.script)
    harness.store.probe_refused = case.is_probe_refused

    harness.drain_first_segment(in_doubt=case.in_doubt)

    assert (sorted(harness.stored.values()), harness.dead) == (list(case.stored), list(case.dead))
    assert case.tokens in {None, " ".join(harness.tokens)}
    assert case.slept is None or harness.slept == case.slept
    assert case.between_turns_s[0] <= harness.between_turns_s <= case.between_turns_s[1]
    assert not case.is_refilled or "refill 1" in harness.store.events
    assert case.alarms in {None, harness.progress.alarms}
    assert harness.progress.trouble == ""
    assert not file.path.exists()
    assert not [*harness.directory.glob("repair/*")]


def test_insert_that_does_not_end_is_killed_and_repeated(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["delayed:1000"]
    harness.sleeps_max = 1_000

    harness.drain_first_segment()

    assert harness.store.events[0] == "kill"
    assert harness.tokens == ["#0", "#0"]
    assert sorted(harness.stored.values()) == [200, 300]


def test_incomplete_count_is_repeated_once(harness: WriterHarness) -> None:
    writer = harness.writer
    writer.drain()
    file = harness.file(segment_of([TODAY] * 200))
    harness.store.script = ["half_a_day"]

    writer.drain()
    harness.store.parts *= 2
    harness.between_turns_s += 2.0
    writer.drain()

    assert not file.path.exists()
    assert harness.tokens == ["#0"]
    assert harness.dead == []


def test_duplicated_day_does_not_hide_a_missing_day(harness: WriterHarness) -> None:
    file = harness.file(segment_of([TODAY - 1] * 200 + [TODAY] * 200))
    day = next(iter(harness.store.rows_of(file.path)))
    harness.store.parts = [(file.id, day, 200), (file.id, day, 200)]

    harness.drain_first_segment(in_doubt=True)

    assert [cause for cause, _ in harness.dead] == ["odd"]


@pytest.mark.parametrize("difference", [-1, 1], ids=["fewer rows", "more rows"])
def test_segment_is_kept_if_the_engine_read_another_number_of_rows(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch, difference: int
) -> None:
    file = harness.file(TWO_DAYS)
    harness.sleeps_max = 1
    insert = harness.store.insert
    monkeypatch.setattr(harness.store, "counts", lambda _held: {})
    monkeypatch.setattr(harness.store, "insert", lambda path, **more: insert(path, **more) + difference)

    with pytest.raises(Stopping):
        harness.drain_first_segment()

    assert harness.tokens == ["#0"]
    assert file.path.exists()


def test_refused_row_becomes_a_dead_letter_and_the_next_segment_is_inserted_first(
    harness: WriterHarness,
) -> None:
    content = segment_of([TODAY - 1])
    harness.file(content)
    harness.file(segment_of([TODAY]), seq=2)
    harness.store.poisonous_days = {day_of(1)}
    writer = harness.writer

    writer.drain()

    assert [count for _, _, count in harness.store.parts] == [1]
    assert harness.dead == []
    writer.drain()
    assert [(letter.cause, letter.text) for letter in harness.reasons] == [
        ("poison", "constraint is violated")
    ]
    assert harness.dead_content("poison") == content
    assert harness.progress.dead == {"poison": 1}


def test_stop_while_the_store_is_unavailable_keeps_the_segment(harness: WriterHarness) -> None:
    file = harness.file(TWO_DAYS)
    harness.store.script = ["error:210"] * 99
    harness.sleeps_max = 5

    harness.writer.run()

    assert file.path.exists()
    assert harness.progress.trouble == "retry: REFUSED (210)"


def test_idle_writer_checks_the_store_for_damage_every_minute(harness: WriterHarness) -> None:
    harness.sleeps_max = 1250

    harness.writer.run()

    assert harness.slept == [0.1] * 1250
    assert harness.store.events == ["inspect", "inspect"]


def test_failed_check_of_the_store_does_not_end_the_writer(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise StoreTrouble("connection refused")

    monkeypatch.setattr(harness.store, "inspect", failing)
    harness.sleeps_max = 1250

    harness.writer.run()

    assert len(harness.slept) == 1250


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(["error:243"] * 40, id="waiting until the store has space"),
        pytest.param(["delayed:400"], id="waiting for a statement whose answer was lost"),
    ],
)
def test_store_is_checked_for_damage_while_the_writer_waits(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch, script: list[str]
) -> None:
    harness.file(TWO_DAYS)
    harness.sleeps_max = 500
    harness.store.script = script
    harness.store.probe_refused = True
    monkeypatch.setattr(harness.store, "kill", lambda _prefix: None)

    harness.drain_first_segment()

    inspections = harness.store.events.count("inspect")
    assert inspections >= max(1, sum(harness.slept) // 120)


class SizeCountingFile(FakeFile):
    """A segment that counts the reads of its size."""

    size_reads = 0

    @property
    def bytes(self) -> int:
        type(self).size_reads += 1
        return super().bytes


def test_backlog_size_is_computed_once_per_round(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[int, int]] = []
    report = WaitingUnits.report

    def report_and_record(waiting: WaitingUnits, now_s: float) -> None:
        report(waiting, now_s)
        reported.append((harness.progress.backlog_segments, harness.progress.backlog_bytes))

    monkeypatch.setattr(WaitingUnits, "report", report_and_record)
    files = [harness.file(segment_of([TODAY]), seq=seq) for seq in range(1, 31)]
    size = files[0].bytes
    harness.files = [SizeCountingFile(file.id, file.path) for file in files]

    harness.writer.drain()

    assert reported == [(left, left * size) for left in range(30, -1, -1)]
    assert SizeCountingFile.size_reads <= 2 * 30
