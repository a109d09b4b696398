"""Tests of the life cycle: probes find a disabled, restored or deleted installation, with backoff."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.platform.installations.installations import Installations
from receiver.platform.installations.lifecycle import (
    ACTIVE_EVERY_S,
    DISABLED_FIRST_S,
    DISABLED_S_MAX,
    LifeCycle,
    Verdict,
    next_state,
)
from receiver.platform.installations.records import Installation, State, StateChange
from tests.support.cases import each_case
from tests.support.installations import T0_S, TOKEN, installation

DAY_S = 86_400.0


class Platform:
    """A platform that answers probes, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.now_s = T0_S
        self.verdict: Verdict = "works"
        self.probed_at_s: list[float] = []
        self.installations = Installations(directory)
        self.installations.add(installation(), TOKEN)
        self.cycle = LifeCycle(
            self.installations,
            self.probe,
            now_s=lambda: self.now_s,
            monotonic_s=lambda: self.now_s,
            random_share=lambda: 0.0,
        )

    def probe(self, _record: Installation, token: str) -> Verdict:
        assert token == TOKEN
        self.probed_at_s.append(self.now_s)
        return self.verdict

    def wait(self, seconds: float, step_s: float = 30.0) -> None:
        """Let time pass, and probe what is due."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += step_s
            self.cycle.probe_due()

    @property
    def state(self) -> str:
        return self.record.state

    @property
    def record(self) -> Installation:
        found = self.installations.find("icfg_a1")
        assert found is not None
        return found


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(tmp_path)


def test_p40_refused_call_shows_that_the_installation_is_disabled(platform: Platform) -> None:
    platform.cycle.probe_due()
    platform.verdict = "disabled"
    platform.wait(ACTIVE_EVERY_S + 30)

    assert platform.state == "disabled"
    assert platform.record.deleted_at_s == platform.record.since_s + 30 * DAY_S
    assert platform.installations.token("icfg_a1") == TOKEN


def test_p40_requested_probe_runs_before_the_interval_has_passed(platform: Platform) -> None:
    platform.cycle.probe_due()
    verdicts: list[tuple[Verdict, State]] = [("no answer", "active"), ("disabled", "disabled")]
    for verdict, state in verdicts:
        platform.verdict = verdict
        platform.cycle.request_probe()
        platform.cycle.probe_due()
        assert platform.state == state
    platform.cycle.request_probe()
    platform.cycle.probe_due()

    assert len(platform.probed_at_s) == 3


def test_p40_requested_probe_without_an_answer_is_repeated_soon(platform: Platform) -> None:
    platform.cycle.probe_due()
    platform.verdict = "no answer"
    platform.cycle.request_probe()
    platform.cycle.probe_due()
    platform.verdict = "disabled"
    platform.wait(DISABLED_FIRST_S)

    assert platform.state == "disabled"


def test_p40_disabled_installation_is_probed_with_growing_intervals(platform: Platform) -> None:
    platform.verdict = "disabled"
    platform.cycle.probe_due()
    platform.wait(3 * DAY_S)

    waits_s = [
        after - before for before, after in zip(platform.probed_at_s, platform.probed_at_s[1:], strict=False)
    ]
    assert waits_s[:4] == [DISABLED_FIRST_S * factor for factor in (1, 2, 4, 8)]
    assert max(waits_s) <= DISABLED_S_MAX + 30
    assert len(waits_s) < 25


def test_p42_transfer_of_ownership_restores_the_installation(platform: Platform) -> None:
    platform.verdict = "disabled"
    platform.wait(29 * DAY_S, 600.0)
    platform.verdict = "works"
    platform.wait(DISABLED_S_MAX + 600, 600.0)

    assert platform.state == "active"
    assert [change.state for change in platform.record.changes] == ["active", "disabled", "active"]
    assert platform.record.deleted_at_s is None


def test_p42_installation_without_a_transfer_is_deleted_after_30_days(platform: Platform) -> None:
    platform.verdict = "disabled"
    platform.wait(30 * DAY_S - 600, 600.0)
    platform.verdict = "unauthorized"
    assert platform.state == "disabled"
    platform.wait(DISABLED_S_MAX + 1_200, 600.0)

    assert platform.state == "deleted"
    assert platform.installations.token("icfg_a1") == ""
    count = len(platform.probed_at_s)
    platform.wait(DAY_S, 600.0)
    assert len(platform.probed_at_s) == count


@each_case(
    ("state", "verdict", "days", "expected"),
    [
        ("active", "works", 0, "active"),
        ("active", "no answer", 0, "active"),
        ("active", "forbidden", 0, "active"),
        ("active", "unauthorized", 99, "active"),
        ("active", "disabled", 0, "disabled"),
        ("disabled", "disabled", 29, "disabled"),
        ("disabled", "disabled", 31, "disabled"),
        ("disabled", "no answer", 31, "disabled"),
        ("disabled", "unauthorized", 29, "disabled"),
        ("disabled", "forbidden", 29, "active"),
        ("disabled", "works", 31, "active"),
        ("disabled", "forbidden", 30, "deleted"),
        ("disabled", "unauthorized", 30, "deleted"),
    ],
)
def test_p42_state_after_a_probe(state: State, verdict: Verdict, days: float, expected: State) -> None:
    record = installation(changes=(StateChange("active", T0_S - 9), StateChange(state, T0_S)))

    assert next_state(record, verdict, T0_S + days * DAY_S) == expected


def test_installation_without_a_token_is_not_probed(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "tokens" / "icfg_a1").unlink()
    platform.wait(DAY_S, 600.0)

    assert platform.probed_at_s == []


def test_token_that_cannot_be_read_ends_no_thread(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_installation_id: str) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(platform.installations, "token", fail)
    platform.cycle.probe_due()
    monkeypatch.undo()
    platform.wait(ACTIVE_EVERY_S + 60)

    assert platform.probed_at_s
