"""Tests of the commit rate, which refuses deliveries that could not be acknowledged in time."""

from __future__ import annotations

import asyncio

import pytest

from receiver.errors import Overloaded
from receiver.intake.group import GROUP_TARGET_S, CommitRate
from receiver.intake.pending import GROUP_BYTES_MAX
from receiver.settings import MIB, Limits
from tests.support.intake import SPAN_BODY, CoreDouble, on_uvloop, request, running, until

DEADLINE_S = 5.0


def is_accepted(rate: CommitRate, queued_bytes: int) -> bool:
    try:
        rate.refuse_if_overloaded(queued_bytes, DEADLINE_S)
    except Overloaded:
        return False
    return True


def test_delivery_that_would_wait_for_half_its_deadline_is_refused() -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(1_000, 1.0)

    assert is_accepted(rate, 2_400)
    assert not is_accepted(rate, 2_600)


def test_initial_rate_is_that_of_an_ordinary_core() -> None:
    assert is_accepted(CommitRate(), 100 * MIB)
    assert not is_accepted(CommitRate(), 1_000 * MIB)


def test_groups_in_progress_count_as_load() -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(1_000, 1.0)
    rate.bytes_in_progress = 2_000

    assert not is_accepted(rate, 600)


@pytest.mark.parametrize("seconds", [1.0, 3_600.0])
def test_delivery_with_an_empty_queue_is_always_accepted(seconds: float) -> None:
    rate = CommitRate()
    rate.observe(1, seconds)

    assert is_accepted(rate, 0)


def test_single_slow_group_affects_the_rate_only_briefly() -> None:
    rate = CommitRate()
    rate.observe(1_000_000, 30.0)
    for _ in range(10):
        rate.observe(1_000_000, 0.01)

    assert is_accepted(rate, 10_000_000)


def test_delayed_small_group_hardly_changes_the_rate() -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(10_000_000, 0.1)
    rate.observe(1_000, 0.1)

    assert is_accepted(rate, 100_000_000)


def after_small_groups(*, slow_count: int) -> CommitRate:
    """Return the rate after small groups, some of which were slow because the machine was busy."""
    rate = CommitRate()
    for _ in range(200):
        rate.observe(400, 0.0001)
    for _ in range(slow_count):
        rate.observe(400, 0.005)
    for _ in range(50):
        rate.observe(400, 0.0001)
    return rate


@pytest.mark.parametrize("slow_count", [0, 1, 5])
def test_fixed_cost_of_small_groups_does_not_refuse_a_large_delivery(slow_count: int) -> None:
    rate = after_small_groups(slow_count=slow_count)

    assert is_accepted(rate, 32_000_000)


def test_small_groups_do_not_change_the_estimate_for_a_large_group() -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(10_000_000, 0.1)
    for _ in range(200):
        rate.observe(400, 0.0001)

    assert is_accepted(rate, 200_000_000)


def test_expensive_small_groups_change_the_rate() -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(400, 0.004)

    assert not is_accepted(rate, 400_000)


def test_group_of_zero_duration_is_fast() -> None:
    rate = CommitRate()
    for _ in range(2_000):
        rate.observe(4_000, 0.0)

    assert rate.group_bytes_max >= GROUP_BYTES_MAX


@pytest.mark.parametrize("seconds", [0.4, 40.0])
def test_group_is_limited_to_its_target_duration(seconds: float) -> None:
    rate = CommitRate()
    for _ in range(20):
        rate.observe(4_000, seconds)

    assert rate.group_bytes_max == pytest.approx(4_000 * GROUP_TARGET_S / seconds, rel=0.01)


@on_uvloop
async def test_overload_gets_503_before_the_body_is_read() -> None:
    core = CoreDouble()
    async with running(core=core, limits=Limits(answer_deadline_s=0.001)) as intake:
        connection = await intake.connect()
        await until(lambda: intake.server.connection_count == 1)
        core.may_continue.clear()
        first = asyncio.create_task(intake.post(SPAN_BODY + b" " * 100_000))
        await asyncio.to_thread(core.running.wait)
        connection.writer.write(request(SPAN_BODY)[:-1])
        refused = await connection.answer()
        await connection.close()
        core.may_continue.set()
        await first
        await until(lambda: intake.admission.bytes_in_flight == 0)

    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
