"""The writer with a store that loses, delays or refuses INSERTs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from receiver.dead_letters.directory import DeadLetters, Reason
from receiver.writer.environment import Environment, Stopping
from receiver.writer.progress import Progress
from receiver.writer.writer import Writer
from tests.support.fake_clickhouse import (
    NOW_S,
    TODAY,
    FakeCore,
    FakeFile,
    FakeJournal,
    MemoryStore,
    open_ledger,
    open_window,
    segment_of,
)
from tests.support.segments import day_of

ID = "0000000000000007-0000000001"
TWO_DAYS = segment_of([TODAY - 1] * 300 + [TODAY] * 200)


@dataclass
class WriterHarness:
    """A writer whose dependencies are test doubles."""

    directory: Path
    store: MemoryStore
    files: list[FakeFile] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    core: FakeCore = field(default_factory=FakeCore)
    sleeps_max: int = 60
    heartbeat: Callable[[], None] = lambda: None
    between_turns_s: float = 0.0
    """Time that passed while no segment had a turn."""
    clock_step_s: float = 0.0
    """Difference by which the wall clock was set."""

    def file(self, content: bytes, *, seq: int = 1) -> FakeFile:
        file = FakeFile.make(self.directory, content, seq=seq)
        self.files.append(file)
        return file

    def sleep(self, delay_s: float) -> None:
        if delay_s:
            self.slept.append(round(delay_s, 3))
        if len(self.slept) >= self.sleeps_max:
            raise Stopping

    @property
    def writer(self) -> Writer:
        environment = Environment(
            now=lambda: NOW_S + sum(self.slept) + self.between_turns_s + self.clock_step_s,
            monotonic=lambda: sum(self.slept) + self.between_turns_s,
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
            heartbeat=self.heartbeat,
        )
        return Writer(
            FakeJournal(self.files),
            self.store,
            core=self.core,
            window=open_window(self.directory),
            ledger=open_ledger(self.directory),
            dead=DeadLetters(self.directory / "dead"),
            progress=self.progress,
            environment=environment,
        )

    def drain_first_segment(self, *, in_doubt: bool = False, turns_max: int = 1_000) -> None:
        """Run the writer until the first segment is deleted; time passes between the turns.

        `in_doubt`: the writer finds the segments at start, so their INSERTs may have been sent before.
        """
        writer, listed = self.writer, list(self.files)
        if not in_doubt:
            self.files.clear()
            writer.drain()
            self.files += listed
        for _ in range(turns_max):
            if not listed[0].path.exists():
                return
            self.between_turns_s += 0.0 if writer.drain() else 1.0

    @property
    def stored(self) -> dict[str, int]:
        rows: Counter[str] = Counter()
        for _, day, count in self.store.parts:
            rows[day] += count
        return dict(rows)

    @property
    def dead_letters(self) -> list[Reason]:
        reasons = sorted((self.directory / "dead").glob("*.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Reason) for path in reasons]


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path, MemoryStore())


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
    assert not harness.files[0].path.exists()


@pytest.mark.parametrize(
    ("script", "tokens", "refilled"),
    [
        pytest.param(["answer_lost"], ["#0"], True, id="applied, response lost: not sent again"),
        pytest.param(["error:210"], ["#0", "#0"], True, id="network error: the same token again"),
        pytest.param(
            ["tokens_without_rows"],
            ["#0", "#0", "#1"],
            True,
            id="token recorded but rows lost: the next token",
        ),
        pytest.param(
            ["tokens_without_rows", "ok", "tokens_without_rows"],
            ["#0", "#0", "#1", "#1", "#2"],
            True,
            id="rows of two INSERTs lost",
        ),
    ],
)
def test_every_row_is_stored_once_after_a_failed_insert(
    harness: WriterHarness, script: list[str], tokens: list[str], *, refilled: bool
) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = script

    harness.drain_first_segment()

    assert [token.removeprefix(ID) for token in harness.store.tokens] == tokens
    assert sorted(harness.stored.values()) == [200, 300]
    assert len(harness.store.parts) == 2
    assert ("refill 1" in harness.store.events) == refilled
    assert harness.dead_letters == []


def test_missing_days_are_inserted_with_their_own_tokens(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["tokens_and_first_day"]

    harness.drain_first_segment()

    first, second = harness.store.tokens
    assert first == f"{ID}#0"
    assert not second.startswith(ID)
    assert sorted(harness.stored.values()) == [200, 300]
    assert len(harness.store.parts) == 2
    assert list((harness.directory / "repair").iterdir()) == []


def test_failed_insert_of_missing_days_is_repeated(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["tokens_and_first_day", "tokens_without_rows"]

    harness.drain_first_segment()

    assert [token.partition("#")[2] for token in harness.store.tokens] == ["0", "0", "0", "1"]
    assert len(harness.store.parts) == 2


def test_insert_that_still_runs_is_awaited_and_not_repeated(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["delayed:3"]

    harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0"]
    assert len(harness.store.parts) == 2
    assert harness.slept == [0.1, 0.1, 0.2, 0.4]


def test_insert_that_does_not_end_is_killed_and_repeated(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["delayed:1000"]
    harness.sleeps_max = 1_000

    harness.drain_first_segment()

    assert harness.store.events[0] == "kill"
    assert harness.store.tokens == [f"{ID}#0"] * 2
    assert len(harness.store.parts) == 2


def test_rows_that_vanish_twice_become_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["ok_without_rows"] * 9

    harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0", f"{ID}#1"]
    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("short", 500)]
    assert not harness.files[0].path.exists()
    assert harness.progress.alarms == 1


def test_segment_in_doubt_is_retried_with_a_limited_number_of_tokens(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["ok_without_rows"] * 99

    harness.drain_first_segment(in_doubt=True)

    assert len(harness.store.tokens) == 8
    assert [letter.cause for letter in harness.dead_letters] == ["short"]


def test_partly_stored_day_raises_an_alarm_and_becomes_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["half_a_day"]

    harness.drain_first_segment()

    assert [letter.cause for letter in harness.dead_letters] == ["odd"]
    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.progress.alarms >= 1


def test_rows_that_may_have_expired_are_not_required(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY - 31] * 10))
    harness.store.script = ["ok_without_rows"]

    harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.dead_letters == []


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
    assert harness.dead_letters == []
    writer.drain()
    assert [(letter.cause, letter.text) for letter in harness.dead_letters] == [
        ("poison", "constraint is violated")
    ]
    assert (harness.directory / "dead" / f"{ID}.poison.native.lz4").read_bytes() == content
    assert harness.progress.dead == {"poison": 1}


def test_segment_that_was_refused_as_a_whole_is_stored_in_pieces(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:70 cannot convert"]

    harness.drain_first_segment()

    assert harness.dead_letters == []
    assert sorted(harness.stored) == sorted({day_of(0), day_of(1)})
    assert sum(rows for _, _, rows in harness.store.parts) == 500


def test_stored_rows_are_never_treated_as_refused(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["stored_but_refused"]

    harness.drain_first_segment()

    assert harness.dead_letters == []
    assert harness.store.tokens == [f"{ID}#0"]


def test_no_row_is_dead_while_the_store_refuses_a_probe_row(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:53", "error:53"]
    harness.store.probe_refused = True

    harness.drain_first_segment()

    assert harness.dead_letters == []
    assert harness.slept == [2.0, 4.0]
    assert harness.progress.alarms == 2
    assert len(harness.store.parts) == 2


@pytest.mark.parametrize(
    ("code", "slept"),
    [
        pytest.param(210, [0.1, 0.2, 0.4], id="brief failure: short delays"),
        pytest.param(243, [2.0, 4.0, 8.0], id="overload: long delays"),
    ],
)
def test_retry_delay_depends_on_the_class_of_the_error(
    harness: WriterHarness, code: int, slept: list[float]
) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = [f"error:{code}"] * 3
    harness.store.probe_refused = True

    harness.drain_first_segment()

    assert harness.slept == slept
    assert harness.progress.trouble == ""
    assert len(harness.store.parts) == 2


def test_segment_without_rows_is_deleted_without_an_insert(harness: WriterHarness) -> None:
    harness.file(segment_of([]))

    harness.drain_first_segment()

    assert harness.store.tokens == []
    assert not harness.files[0].path.exists()


def test_segment_is_kept_if_the_engine_read_fewer_rows_than_it_has(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.sleeps_max = 1
    all_rows = harness.store.rows_of
    harness.store.rows_of = lambda path: dict(list(all_rows(path).items())[:1])

    with pytest.raises(Stopping):
        harness.drain_first_segment()

    assert harness.files[0].path.exists()


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
