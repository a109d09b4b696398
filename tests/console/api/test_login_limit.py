"""Limit on failed logins."""

from __future__ import annotations

import pytest

from receiver.console.api import access
from receiver.console.api.access import FAILURES_MAX, WINDOW_S, LoginLimit


class Clock:
    """Clock that only the test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def fail(limit: LoginLimit, count: int, address: str = "10.0.0.1") -> None:
    for _ in range(count):
        limit.record_failure(address)


def test_address_waits_after_too_many_failures_until_its_window_ends() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    fail(limit, FAILURES_MAX - 1)
    assert limit.wait_s("10.0.0.1") == 0

    clock.now_s += 10
    fail(limit, 1)

    assert limit.wait_s("10.0.0.1") == WINDOW_S - 10
    assert limit.wait_s("10.0.0.2") == 0
    clock.now_s += WINDOW_S - 10
    assert limit.wait_s("10.0.0.1") == 0


def test_failures_of_an_earlier_window_do_not_count() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    fail(limit, FAILURES_MAX)
    clock.now_s += WINDOW_S

    fail(limit, FAILURES_MAX - 1)
    assert limit.wait_s("10.0.0.1") == 0
    fail(limit, 1)
    assert limit.wait_s("10.0.0.1") == WINDOW_S


def test_address_whose_window_began_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ADDRESSES_MAX", 2)
    clock = Clock()
    limit = LoginLimit(clock)
    fail(limit, FAILURES_MAX, "a")
    clock.now_s += WINDOW_S
    fail(limit, FAILURES_MAX, "b")
    # A new window: now it began after the window of `b`.
    fail(limit, FAILURES_MAX, "a")

    fail(limit, FAILURES_MAX, "c")

    assert [limit.wait_s(address) > 0 for address in "abc"] == [True, False, True]
