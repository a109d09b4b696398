"""The wall clock is believed only while it moves with the one that nobody can set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver.clock import NOTE_NAME, Now, Times
from receiver.engine.clock_check import STEADY_S, Clock
from receiver.engine.expiry import refuse_to_open
from receiver.engine.opening import open_store
from receiver.errors import OperatorError
from receiver.settings import Settings

HOUR_S, YEAR_S = 3_600.0, 31_536_000.0
STEPS_S = [HOUR_S, -HOUR_S, YEAR_S, -YEAR_S]


@dataclass
class Machine:
    """A machine whose clocks a test moves."""

    wall_s: float = 1_800_000_000.0
    running_s: float = 1_000.0
    boot: str = "first"

    def clock(self, root: Path) -> Clock:
        return Clock(root / "clock.json", self.times)

    def now(self, root: Path) -> Now:
        return Now(root / "clock.json", self.times)

    @property
    def times(self) -> Times:
        return Times(lambda: self.wall_s, lambda: self.running_s, self.boot)

    def wait(self, seconds: float) -> None:
        self.wall_s += seconds
        self.running_s += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_time_that_passes_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wait(YEAR_S)

    assert clock.look() == ""


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_clock_that_is_set_is_not_believed(step_s: float, machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += step_s

    assert f"{abs(step_s):.0f} s {'ahead' if step_s > 0 else 'behind'}" in clock.look()


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_clock_that_is_set_back_to_where_it_was_is_believed_at_once(
    step_s: float, machine: Machine, tmp_path: Path
) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += step_s
    clock.look()
    machine.wall_s -= step_s

    assert clock.look() == ""


def test_a_step_of_an_hour_is_believed_after_an_hour_of_calm(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += HOUR_S
    clock.look()
    machine.wait(STEADY_S - 1)
    before = clock.look()
    machine.wait(1)

    assert before
    assert clock.look() == ""


def test_a_clock_that_goes_on_jumping_is_not_believed(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    for _ in range(12):
        machine.wall_s += HOUR_S / 2
        clock.look()
        machine.wait(STEADY_S / 3)

    assert clock.look()


def test_a_step_of_a_year_is_believed_only_by_somebody(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += YEAR_S
    clock.look()
    machine.wait(100 * STEADY_S)
    before = clock.look()
    (tmp_path / "clock.json").unlink()

    assert "clock.json" in before
    assert clock.look() == ""


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_restart_makes_no_wrong_clock_right(step_s: float, machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s += step_s
    machine.wait(5)

    assert machine.clock(tmp_path).reason


def test_a_machine_that_was_off_for_long_is_believed(machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s, machine.running_s, machine.boot = machine.wall_s + YEAR_S, 10.0, "second"

    assert machine.clock(tmp_path).reason == ""


def test_a_machine_that_wakes_up_in_the_past_is_not_believed(machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s, machine.running_s, machine.boot = machine.wall_s - YEAR_S, 10.0, "second"

    assert machine.clock(tmp_path).reason


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_delivery_is_stamped_with_the_time_that_is_believed(
    step_s: float, machine: Machine, tmp_path: Path
) -> None:
    machine.clock(tmp_path)
    now, right_s = machine.now(tmp_path), machine.wall_s + 5
    machine.wall_s += step_s
    machine.wait(5)
    started_later = machine.now(tmp_path)

    assert [now.ns(), started_later.ns()] == [right_s * 1e9] * 2


def test_what_the_store_believes_the_intakes_follow(machine: Machine, tmp_path: Path) -> None:
    clock, now = machine.clock(tmp_path), machine.now(tmp_path)
    machine.wall_s += HOUR_S
    clock.look()
    machine.wait(STEADY_S)
    clock.look()

    assert now.ns() == machine.wall_s * 1e9


def test_a_note_that_cannot_be_written_is_no_sign_from_somebody(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path / "missing")
    machine.wall_s += YEAR_S

    assert clock.look()


def test_an_engine_that_would_delete_by_a_wrong_clock_is_not_opened(machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s += YEAR_S

    with pytest.raises(OperatorError, match="stays closed"):
        refuse_to_open(machine.clock(tmp_path), retention_days=30)


def test_the_store_of_a_data_directory_stays_closed_while_the_clock_is_not_believed(
    tmp_path: Path,
) -> None:
    real = Times()
    Clock(tmp_path / NOTE_NAME, Times(lambda: real.wall_s() - YEAR_S, real.running_s, real.boot))

    with pytest.raises(OperatorError, match="stays closed"):
        open_store(Settings(data_dir=str(tmp_path)), disk_free_min=lambda: 0)

    assert not (tmp_path / "store").exists()


def test_an_engine_that_deletes_nothing_is_opened(machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s += YEAR_S

    refuse_to_open(machine.clock(tmp_path), retention_days=0)
