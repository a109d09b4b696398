"""Random segments, refusals, kills, disk errors and damage: each row is stored once or in a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from receiver import transcode
from receiver.writer.outcome import partition_id
from receiver.writer.reading import Reading
from tests.support.cases import RANDOM_CASES
from tests.support.redelivery import FaultInjector, Harness, Killed, inject_faults, rotted
from tests.support.segments import day_of

OUTCOMES = [
    *["ok"] * 6,
    *(
        "answer_lost",
        "delayed:3",
        "delayed:40",
        "tokens_without_rows",
        "first_day",
        "first_day:241",
        "first_day:469",
        "stored_but_refused",
    ),
    *("error:117", "error:159", "error:210", "error:241", "error:243", "error:469", "error:9999"),
    "error:252 Too many partitions for single INSERT block",
]
CALLS = frozenset({"rename", "sync_data", "sync_directory", "unlink"})
NUMBERS = range(6)
SEEDS = range(RANDOM_CASES)
DAMAGE_SEEDS = range(1_000, 1_000 + RANDOM_CASES)


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    injector = FaultInjector()
    with pytest.MonkeyPatch.context() as patch:
        inject_faults(injector, patch, CALLS)
        yield injector


class RandomRun:
    """A writer with random segments and faults, and then without faults until the journal is empty."""

    def __init__(self, directory: Path, injector: FaultInjector, seed: int, *, is_damaging: bool) -> None:
        directory.mkdir()
        self.random = Random(seed)
        self.injector = injector
        self.is_damaging = is_damaging
        self.damaged: set[Path] = set()
        self.harness = Harness(directory, injector=injector)
        store, choose = self.harness.store, self.random.choice
        store.rows_max = choose([None, None, 1, 3, 6])
        store.partitions_max = choose([100, 100, 1, 2, 3])
        poisonous = choose([0.0, 0.2, 1.0])
        store.poisonous_days = {day_of(number) for number in NUMBERS if self.random.random() < poisonous}
        store.script = [choose(OUTCOMES) for _ in range(choose([0, 3, 10, 25]))]

    def run(self) -> None:
        self.add()
        self.harness.start()
        for _ in range(self.random.randint(1, 14)):
            self.random.choice([self.add, self.restart, self.damage, *[self.turns] * 6])()
        self.harness.store.script = []
        self.restart()
        for _ in range(300):
            self.harness.sleeps = 0
            self.harness.run_turns(1)
            if not any(file.path.exists() for file in self.harness.files):
                break

    def add(self) -> None:
        """Add a segment. With damage its deliveries are new: duplicates in a damaged segment are stored."""
        random = self.random
        if self.is_damaging:
            new = sorted({*range(12)} - self.harness.issued)
            records = [[number] for number in random.sample(new, min(3, len(new)))]
        else:
            records = [random.choices(NUMBERS, k=random.randint(1, 3)) for _ in range(random.randint(0, 3))]
        if len(self.harness.files) < 5:
            self.harness.add(*records)

    def restart(self) -> None:
        self.harness.start()

    def damage(self) -> None:
        paths = [file.path for file in self.harness.files if file.path.exists()]
        paths = [path for path in paths if path not in self.damaged]
        if paths and self.is_damaging:
            path = self.random.choice(paths)
            self.damaged.add(path)
            records = transcode.scan(path.read_bytes()).records
            if records:
                rotted(path, record=self.random.randrange(len(records)))

    def turns(self) -> None:
        """Run some turns, with a kill, an error of the disk, or no fault at a random step."""
        is_kill = self.random.random() < 0.5
        self.injector.ends_with = Killed if is_kill else lambda: OSError(28, "No space left on device")
        self.injector.steps_left = self.random.choice([-1, self.random.randint(1, 60)])
        self.harness.sleeps = 0
        try:
            self.harness.run_turns(self.random.randint(1, 6))
        except (Killed, OSError):
            self.injector.steps_left = -1
            self.restart()
        self.injector.steps_left = -1


def dead_rows(harness: Harness) -> Counter[str]:
    """Return the rows in dead letters, by day."""
    rows: Counter[str] = Counter()
    for letter in harness.dead_letters:
        for first, stop, day, shard in transcode.day_runs(letter.path.read_bytes(), 0):
            rows[partition_id(day, shard)] += stop - first
    return rows


@pytest.mark.random_cases
@pytest.mark.fault("random segments, store faults, kills and disk errors")
def test_any_fault_leaves_every_row_stored_once_or_in_one_dead_letter(
    tmp_path: Path, injector: FaultInjector
) -> None:
    for seed in SEEDS:
        run = RandomRun(tmp_path / str(seed), injector, seed, is_damaging=False)
        run.run()

        harness = run.harness
        rows = dead_rows(harness)
        for _, day, count in harness.store.parts:
            rows[day] += count
        assert rows == {day_of(number): number + 1 for number in harness.issued}, f"seed {seed}"
        assert {letter.reason.cause for letter in harness.dead_letters} <= {"poison", "refused"}, (
            f"seed {seed}"
        )
        assert_accounts_are_closed(harness, seed)


@pytest.mark.random_cases
@pytest.mark.fault("random segments, store faults, kills, disk errors and damage")
def test_any_fault_with_damage_leaves_no_row_unaccounted_for(
    tmp_path: Path, injector: FaultInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reading, "has_small_blocks", False)
    for seed in DAMAGE_SEEDS:
        run = RandomRun(tmp_path / str(seed), injector, seed, is_damaging=True)
        run.run()

        assert all(copies <= 1 for copies in run.harness.copies.values()), f"seed {seed}"
        assert_accounts_are_closed(run.harness, seed)


def assert_accounts_are_closed(harness: Harness, seed: int) -> None:
    """Every span has an outcome, and nothing is left of the segments."""
    received = sum(number + 1 for copies in harness.sent.values() for _, number in copies)
    stored = sum(count for _, _, count in harness.store.parts)
    dead = sum(letter.reason.rows or 0 for letter in harness.dead_letters)
    assert not any(file.path.exists() for file in harness.files), f"seed {seed}"
    assert harness.recorded.unaccounted == 0, f"seed {seed}"
    assert harness.recorded[:2] == (received, stored), f"seed {seed}"
    assert harness.recorded.dead == dead, f"seed {seed}"
    assert harness.progress.stall_reason == "", f"seed {seed}"
