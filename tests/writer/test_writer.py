"""The writer with stores that lose, forget, delay and refuse INSERTs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from receiver.dead_letters.letter_files import DeadLetters, Reason
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

ID = "0000000000000007-0000000001"
TWO_DAYS = segment_of([TODAY - 1] * 300 + [TODAY] * 200)


@dataclass
class Bench:
    """A writer whose dependencies are test doubles."""

    directory: Path
    store: MemoryStore
    files: list[FakeFile] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    core: FakeCore = field(default_factory=FakeCore)
    naps_max: int = 60
    alive: Callable[[], None] = lambda: None
    between_turns_s: float = 0.0
    """Time that passed while no segment had a turn."""

    def file(self, content: bytes, *, seq: int = 1) -> FakeFile:
        made = FakeFile.make(self.directory, content, seq=seq)
        self.files.append(made)
        return made

    def sleep(self, delay_s: float) -> None:
        if delay_s:
            self.slept.append(round(delay_s, 3))
        if len(self.slept) >= self.naps_max:
            raise Stopping

    @property
    def writer(self) -> Writer:
        environment = Environment(
            now=lambda: NOW_S + sum(self.slept) + self.between_turns_s,
            sleep=self.sleep,
            jitter=lambda: 0.0,
            repair_dir=self.directory / "repair",
            retention_days=30,
            alive=self.alive,
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

    def carry(self, *, in_doubt: bool = False, turns_max: int = 1_000) -> None:
        """Give the first segment turn after turn until it is deleted; time passes between the turns."""
        writer = self.writer
        writer.process(self.files[0], in_doubt=in_doubt)
        for _ in range(turns_max):
            if not self.files[0].path.exists():
                return
            self.between_turns_s += 0.0 if writer.drain() else 1.0

    @property
    def stored(self) -> dict[str, int]:
        return {day: count for _, day, count in self.store.parts}

    @property
    def letters(self) -> list[Reason]:
        reasons = sorted((self.directory / "dead").glob("*.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Reason) for path in reasons]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryStore())


def test_segment_is_inserted_counted_synced_and_deleted(bench: Bench) -> None:
    file = bench.file(TWO_DAYS)

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0"]
    assert bench.store.events == ["count", "sync"]
    assert sum(bench.stored.values()) == 500
    assert not file.path.exists()


def test_segments_are_inserted_oldest_first_without_a_pause(bench: Bench) -> None:
    for seq in (1, 2, 3):
        bench.file(segment_of([TODAY]), seq=seq)

    assert bench.writer.drain() == 3

    assert [token.partition("#")[0][-1] for token in bench.store.tokens] == ["1", "2", "3"]
    assert bench.slept == []


def test_segments_found_at_start_are_counted_before_an_insert(bench: Bench) -> None:
    file = bench.file(TWO_DAYS)
    found = bench.store.rows_of(file.path)
    bench.store.parts = [(segment, day, rows) for day, (segment, rows) in found.items()]

    bench.writer.drain()

    assert bench.store.tokens == []
    assert bench.store.events == ["count", "refill 1", "sync"]
    assert not bench.files[0].path.exists()


@pytest.mark.parametrize(
    ("script", "tokens", "refilled"),
    [
        pytest.param(["lost"], ["#0"], True, id="applied, response lost: counted, not sent again"),
        pytest.param(["error:210"], ["#0", "#0"], True, id="refused: the same token again"),
        pytest.param(
            ["burnt"], ["#0", "#0", "#1"], True, id="token used without storing rows: the next token works"
        ),
        pytest.param(
            ["burnt", "ok", "burnt"], ["#0", "#0", "#1", "#1", "#2"], True, id="the same for the missing days"
        ),
    ],
)
def test_every_row_is_stored_once_after_a_failed_insert(
    bench: Bench, script: list[str], tokens: list[str], *, refilled: bool
) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = script

    bench.carry()

    assert [token.removeprefix(ID) for token in bench.store.tokens] == tokens
    assert sorted(bench.stored.values()) == [200, 300]
    assert len(bench.store.parts) == 2
    assert ("refill 1" in bench.store.events) == refilled
    assert bench.letters == []


def test_missing_days_are_inserted_with_their_own_tokens(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["torn"]

    bench.carry()

    first, second = bench.store.tokens
    assert first == f"{ID}#0"
    assert second.startswith(f"{ID}@")
    assert sorted(bench.stored.values()) == [200, 300]
    assert len(bench.store.parts) == 2
    assert list((bench.directory / "repair").iterdir()) == []


def test_failed_insert_of_missing_days_is_repeated(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["torn", "burnt"]

    bench.carry()

    assert [token[len(ID) :].partition("#")[2] for token in bench.store.tokens] == ["0", "0", "0", "1"]
    assert len(bench.store.parts) == 2


def test_running_insert_is_awaited_and_not_repeated(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["late:3"]

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0"]
    assert len(bench.store.parts) == 2
    assert bench.slept == [0.1, 0.1, 0.2, 0.4]


def test_insert_that_does_not_end_is_killed_and_repeated(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["late:1000"]

    bench.carry()

    assert bench.store.events[0] == "kill"
    assert bench.store.tokens == [f"{ID}#0"] * 2
    assert len(bench.store.parts) == 2


def test_rows_that_vanish_twice_become_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["eaten"] * 9

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0", f"{ID}#1"]
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("short", 500)]
    assert not bench.files[0].path.exists()
    assert bench.progress.alarms == 1


def test_segment_in_doubt_is_tried_with_more_tokens_up_to_a_limit(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["eaten"] * 99

    bench.carry(in_doubt=True)

    assert len(bench.store.tokens) == 8
    assert [letter.cause for letter in bench.letters] == ["short"]


def test_partly_stored_day_raises_an_alarm_and_becomes_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["half"]

    bench.carry()

    assert [letter.cause for letter in bench.letters] == ["odd"]
    assert bench.store.tokens == [f"{ID}#0"]
    assert bench.progress.alarms >= 1


def test_rows_that_may_have_expired_are_not_required(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 31] * 10))
    bench.store.script = ["eaten"]

    bench.carry()

    assert bench.store.tokens == [f"{ID}#0"]
    assert bench.letters == []


def test_refused_segment_becomes_a_dead_letter_and_the_next_is_inserted(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.file(segment_of([TODAY]), seq=2)
    bench.store.script = ["error:70 cannot convert"]

    bench.writer.drain()

    assert [(letter.cause, letter.text) for letter in bench.letters] == [
        ("refused", "cannot convert; an empty clone of the table accepts all of its rows")
    ]
    assert (bench.directory / "dead" / f"{ID}.refused.native.lz4").read_bytes() == TWO_DAYS
    assert [count for _, _, count in bench.store.parts] == [1]
    assert bench.progress.dead == {"refused": 1}


def test_stored_rows_are_never_treated_as_refused(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["sour"]

    bench.carry()

    assert bench.letters == []
    assert bench.store.tokens == [f"{ID}#0"]


def test_no_row_is_dead_while_the_store_refuses_a_probe_row(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:53", "error:53"]
    bench.store.probe_refused = True

    bench.carry()

    assert bench.letters == []
    assert bench.slept == [2.0, 4.0]
    assert bench.progress.alarms == 2
    assert len(bench.store.parts) == 2


@pytest.mark.parametrize(
    ("code", "slept"),
    [
        pytest.param(210, [0.1, 0.2, 0.4], id="brief failure: short delays"),
        pytest.param(243, [2.0, 4.0, 8.0], id="overload: long delays"),
    ],
)
def test_retry_delay_depends_on_the_class_of_the_error(bench: Bench, code: int, slept: list[float]) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = [f"error:{code}"] * 3

    bench.carry()

    assert bench.slept == slept
    assert bench.progress.trouble == ""
    assert len(bench.store.parts) == 2


def test_segment_without_rows_is_deleted_without_an_insert(bench: Bench) -> None:
    bench.file(segment_of([]))

    bench.carry()

    assert bench.store.tokens == []
    assert not bench.files[0].path.exists()


def test_segment_that_the_engine_read_incompletely_is_kept(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.naps_max = 1
    whole = bench.store.rows_of
    bench.store.rows_of = lambda path: dict(list(whole(path).items())[:1])

    with pytest.raises(Stopping):
        bench.carry()

    assert bench.files[0].path.exists()


def test_stop_while_the_store_is_unavailable_keeps_the_segment(bench: Bench) -> None:
    file = bench.file(TWO_DAYS)
    bench.store.script = ["error:210"] * 99
    bench.naps_max = 5

    bench.writer.run()

    assert file.path.exists()
    assert bench.progress.trouble == "retry: REFUSED (210)"


def test_idle_writer_checks_the_store_for_damage_every_minute(bench: Bench) -> None:
    bench.naps_max = 1250

    bench.writer.run()

    assert bench.slept == [0.1] * 1250
    assert bench.store.events == ["inspect", "inspect"]
