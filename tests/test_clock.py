"""Tests of the clock check: the wall clock is trusted only while it agrees with the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver.clock import NOTE_NAME, Now, Times
from receiver.engine.expiry import STEADY_S, Clock, refuse_to_open
from receiver.engine.opening import open_store
from receiver.errors import OperatorError
from receiver.settings import Settings

HOUR_S, YEAR_S = 3_600.0, 31_536_000.0
STEPS_S = [HOUR_S, -HOUR_S, YEAR_S, -YEAR_S]


@dataclass
class Machine:
    """Machine with clocks that the test moves."""

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


def test_clock_is_trusted_while_time_passes_normally(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wait(YEAR_S)

    assert clock.check() == ""


@pytest.mark.parametrize("step_s", STEPS_S)
def test_clock_that_was_set_is_not_trusted(step_s: float, machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += step_s

    assert f"{abs(step_s):.0f} s {'ahead' if step_s > 0 else 'behind'}" in clock.check()


@pytest.mark.parametrize("step_s", STEPS_S)
def test_clock_that_was_corrected_is_trusted_at_once(step_s: float, machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += step_s
    clock.check()
    machine.wall_s -= step_s

    assert clock.check() == ""


def test_step_of_an_hour_is_trusted_after_a_steady_period(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += HOUR_S
    clock.check()
    machine.wait(STEADY_S - 1)
    before = clock.check()
    machine.wait(1)

    assert before
    assert clock.check() == ""


def test_clock_that_keeps_jumping_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    clock = machine.clock(tmp_path)
    for _ in range(12):
        machine.wall_s += HOUR_S / 2
        clock.check()
        machine.wait(STEADY_S / 3)

    assert clock.check()


def test_step_of_a_year_is_trusted_only_after_the_operator_deletes_the_note(
    machine: Machine, tmp_path: Path
) -> None:
    clock = machine.clock(tmp_path)
    machine.wall_s += YEAR_S
    clock.check()
    machine.wait(100 * STEADY_S)
    before = clock.check()
    (tmp_path / "clock.json").unlink()

    assert "clock.json" in before
    assert clock.check() == ""


@pytest.mark.parametrize("step_s", STEPS_S)
def test_wrong_clock_is_not_trusted_after_a_restart(step_s: float, machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    machine.wall_s += step_s
    machine.wait(5)

    assert machine.clock(tmp_path).reason


@pytest.mark.parametrize(("off_s", "is_trusted"), [(YEAR_S, True), (-YEAR_S, False)])
def test_clock_is_trusted_after_a_boot_unless_it_is_behind(
    machine: Machine, tmp_path: Path, off_s: float, *, is_trusted: bool
) -> None:
    machine.clock(tmp_path)
    machine.wall_s, machine.running_s, machine.boot = machine.wall_s + off_s, 10.0, "second"

    assert (machine.clock(tmp_path).reason == "") is is_trusted


@pytest.mark.parametrize("step_s", STEPS_S)
def test_receive_time_uses_the_trusted_time(step_s: float, machine: Machine, tmp_path: Path) -> None:
    machine.clock(tmp_path)
    now, right_s = machine.now(tmp_path), machine.wall_s + 5
    machine.wall_s += step_s
    machine.wait(5)
    started_later = machine.now(tmp_path)

    assert [now.ns(), started_later.ns()] == [right_s * 1e9] * 2


def test_intakes_use_the_time_that_the_store_process_trusts(machine: Machine, tmp_path: Path) -> None:
    clock, now = machine.clock(tmp_path), machine.now(tmp_path)
    machine.wall_s += HOUR_S
    clock.check()
    machine.wait(STEADY_S)
    clock.check()

    assert now.ns() == machine.wall_s * 1e9


def test_missing_note_that_could_not_be_written_is_not_operator_approval(
    machine: Machine, tmp_path: Path
) -> None:
    clock = machine.clock(tmp_path / "missing")
    machine.wall_s += YEAR_S

    assert clock.check()


def test_engine_is_opened_with_an_untrusted_clock_only_if_it_deletes_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    machine.clock(tmp_path)
    machine.wall_s += YEAR_S

    with pytest.raises(OperatorError, match="stays closed"):
        refuse_to_open(machine.clock(tmp_path), retention_days=30)
    refuse_to_open(machine.clock(tmp_path), retention_days=0)


def test_store_is_not_opened_with_an_untrusted_clock(tmp_path: Path) -> None:
    real = Times()
    Clock(tmp_path / NOTE_NAME, Times(lambda: real.wall_s() - YEAR_S, real.running_s, real.boot))

    with pytest.raises(OperatorError, match="stays closed"):
        open_store(Settings(data_dir=str(tmp_path)), disk_free_min=lambda: 0)

    assert not (tmp_path / "store").exists()
